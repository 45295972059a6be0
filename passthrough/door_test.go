package passthrough

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const patience = time.Second

// A server that is silent keeps one client for as long as it has patience, and nobody who comes
// later.
func TestDoorOfASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d door
		answer := make(chan verdict)
		asked := 0
		ask := func() (verdict, time.Duration) {
			began := time.Now()
			call := func() verdict { asked++; return <-answer }
			said, _ := d.ask(patience, func(f func()) { go f() }, call)
			return said, time.Since(began)
		}
		expect := func(what string, want verdict, waits time.Duration) {
			t.Helper()
			if got, waited := ask(); got != want || waited != waits {
				t.Errorf("%s: %v after %v, want %v after %v", what, got, waited, want, waits)
			}
		}
		expect("the first client", unknown, patience)
		for range 100 {
			expect("a later client", unknown, 0)
		}
		answer <- unknown // the connection has timed out
		time.Sleep(saidFor)
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
		d.close() // nobody asks because that is in doubt
		time.Sleep(saidFor)
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
				call := func() verdict { asked++; return <-answer }
				said, _ := d.ask(patience, func(f func()) { go f() }, call)
				got <- said
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

// Of clients that come all the time only the first waits. What they are told holds no longer than
// saidFor.
func TestDoorAsksAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d door
		var says atomic.Int32
		says.Store(int32(admitted))
		changed := time.Time{}
		call := func() verdict {
			said := says.Load()
			time.Sleep(saidFor / 10) // Redis is far away
			return verdict(said)
		}
		for i := range 100 {
			began := time.Now()
			got, _ := d.ask(patience, func(f func()) { go f() }, call)
			if waited := time.Since(began); waited > 0 && i > 0 {
				t.Errorf("client %d waits for %v", i, waited)
			}
			if ago := began.Sub(changed); got != verdict(says.Load()) && ago >= saidFor {
				t.Errorf("client %d is told what Redis has not said for %v", i, ago)
			}
			if i%17 == 16 {
				says.Store(int32(admitted+refused) - says.Load())
				changed = time.Now()
			}
			time.Sleep(saidFor * 3 / 10)
		}
	})
}

// A client that is let in by an older answer is not in doubt until it asks for something, which may be
// hours later: Redis is asked once it is time.
func TestDoorAsksForThoseInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d door
		start, call := func(f func()) { go f() }, func() verdict { return admitted }
		if _, of := d.ask(patience, start, call); of != 0 {
			t.Error("the first client is in doubt")
		}
		for range 3 {
			if said, of := d.ask(patience, start, call); said != admitted || of != 1 {
				t.Errorf("the next is told %v, in doubt since %d", said, of)
			}
		}
		time.Sleep(saidFor / 2)
		synctest.Wait()
		if asked, _, good := d.judged(); asked != 2 || good != 2 {
			t.Errorf("asked %d times, the last good answer was to %d", asked, good)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if asked, _, _ := d.judged(); asked != 2 {
			t.Errorf("asked %d times, though nobody is in doubt", asked)
		}
		d.ask(patience, start, call)
		d.ask(patience, start, call)
		d.close()
		time.Sleep(time.Hour)
		synctest.Wait()
		if asked, _, _ := d.judged(); asked != 3 {
			t.Errorf("asked %d times, behind the end", asked)
		}
	})
}

// A connection that was open before shows whether clients must log in, and not that Redis takes
// further connections.
func TestDoorLearnsLittleFromOldConnections(t *testing.T) {
	for before, says := range map[verdict][2]verdict{ // after RESET, without and with a login demand
		unknown:    {admitted, loginFirst},
		admitted:   {admitted, loginFirst},
		refused:    {refused, loginFirst},
		loginFirst: {admitted, loginFirst},
	} {
		for i, nobody := range []bool{false, true} {
			var d door
			if before != unknown {
				d.says(before, 0)
			}
			d.shows(d.asks(), nobody, false)
			if d.last != says[i] {
				t.Errorf("%v, then login first %v: %v, want %v", before, nobody, d.last, says[i])
			}
			if asked, _, good := d.judged(); !nobody && good != asked {
				t.Errorf("%v: those in doubt are not told that no login is demanded", before)
			}
		}
	}
}
