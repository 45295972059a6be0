package passthrough

import (
	"testing"
	"testing/synctest"
	"time"
)

// A server that is silent keeps one client for doorPatience, and nobody who comes later.
func TestDoorOfASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d door
		answer := make(chan verdict)
		asked := 0
		ask := func() (verdict, time.Duration) {
			began := time.Now()
			got := d.ask(func(f func()) { go f() }, func() verdict { asked++; return <-answer })
			return got, time.Since(began)
		}
		expect := func(what string, want verdict, waits time.Duration) {
			t.Helper()
			if got, waited := ask(); got != want || waited != waits {
				t.Errorf("%s: %v after %v, want %v after %v", what, got, waited, want, waits)
			}
		}
		expect("the first client", unknown, doorPatience)
		for range 100 {
			expect("a later client", unknown, 0)
		}
		answer <- unknown // the connection has timed out
		time.Sleep(askEvery)
		for range 100 {
			expect("a client when it is asked again", unknown, 0)
		}
		synctest.Wait()
		if asked != 2 {
			t.Errorf("asked %d times", asked)
		}
		answer <- admitted
		synctest.Wait()
		expect("a client after the answer", admitted, 0)
		time.Sleep(askEvery)
		go func() { answer <- refused }()
		expect("a client of a server that is well", refused, 0)
		expect("the next", refused, 0)
	})
}

// Clients that come at the same time wait for one answer.
func TestDoorAsksOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d door
		answer, asked, got := make(chan verdict), 0, make(chan verdict, 10)
		for range 10 {
			go func() {
				got <- d.ask(func(f func()) { go f() }, func() verdict { asked++; return <-answer })
			}()
		}
		synctest.Wait()
		answer <- admitted
		for range 10 {
			if v := <-got; v != admitted {
				t.Errorf("a client was told %v", v)
			}
		}
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
}
