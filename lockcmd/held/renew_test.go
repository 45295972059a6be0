package held

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/journal"
	"lockproxy/internal/names"
	"lockproxy/internal/test/virtualnet"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/script"
)

// renewed is a session lock that is renewed by an upstream which a test plays, in virtual time.
type renewed struct {
	*testing.T
	bg       *background.Jobs
	registry *Registry
	tracked  chan string // the key, at each renewal
	h        *Holder
	lost     chan int64 // tokens
}

func renewing(t *testing.T, answer func() string) *renewed {
	connect := func(names.Identity) *redis.Client {
		return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2,
			DisableIdentity: true, MaxRetries: -1, Dialer: virtualnet.Answering(answer)})
	}
	r := &renewed{T: t, tracked: make(chan string, 100), lost: make(chan int64, 10)}
	r.bg = &background.Jobs{Timers: background.NewTimers(), Log: hclog.NewNullLogger(),
		Clients: background.NewClients(connect, false), Scripts: script.NewMaker(script.Config{})}
	r.registry, _ = testRegistry()
	s := NewSessions(r.bg, r.registry, &names.Filter{}, func(journal.Kind, *Lock, bool) {})
	track := func(_ names.Identity, key string) { r.tracked <- key }
	renewals := NewRenewals(s, func(names.Identity, string) {}, track, func(*Lock) {})
	r.h = &Holder{Connection: "c", LockLost: func(_ string, token int64) { r.lost <- token }}
	lock := &Lock{Token: 7, Request: script.Request{
		Key: "job", Timeout: time.Minute, Session: true, Connection: "c", Number: "1"}}
	lock.TakenBy(r.h, time.Now())
	r.registry.Put(lock)
	renewals.Hold(r.h, lock)
	<-r.tracked
	return r
}

// end lets the holder leave.
func (r *renewed) end() {
	r.h.Leave(r.registry)
	r.bg.Timers.Close()
	r.bg.Clients.Close()
	if len(r.lost) > 0 {
		r.Error("the lock is lost")
	}
}

// The connection that tracked a session lock's key may have failed. So each renewal has the key
// tracked again: otherwise the client would learn of a DEL only at the next one.
func TestRenewalTracksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := renewing(t, func() string { return ":1\r\n" })
		for _, when := range []string{"it has been renewed", "it has been again"} {
			if key := <-r.tracked; key != "job" {
				t.Errorf("%s: %s is tracked", when, key)
			}
		}
		r.end()
	})
}

// A renewal that fails is tried again while the lock lasts, unless the key holds something else or
// the lock is another's.
func TestRenewalThatFails(t *testing.T) {
	for answer, lost := range map[string]bool{
		"-LOADING Redis is loading the dataset in memory\r\n":          false,
		"-READONLY You can't write against a read only replica.\r\n":   false,
		"-OOM command not allowed when used memory > 'maxmemory'.\r\n": false,
		"-NOPERM this user has no permissions\r\n":                     false,
		"-WRONGTYPE Key holds no lock\r\n":                             true,
		":0\r\n":                                                       true,
	} {
		synctest.Test(t, func(t *testing.T) {
			failures := 3
			r := renewing(t, func() string {
				if failures--; failures >= 0 {
					return answer
				}
				return ":1\r\n"
			})
			if lost {
				if token := <-r.lost; token != 7 || failures != 2 {
					t.Errorf("%q: token %d is lost, %d failures later", answer, token, 3-failures)
				}
			} else if <-r.tracked; failures >= 0 {
				t.Errorf("%q: it is renewed before all failures", answer)
			}
			r.end()
		})
		synctest.Test(t, func(t *testing.T) { // and again, until it may have run out
			r := renewing(t, func() string { return answer })
			began := time.Now()
			<-r.lost
			if kept := time.Since(began); (kept < 50*time.Second) != lost || kept > time.Minute+time.Second {
				t.Errorf("%q: it is given up after %v", answer, kept)
			}
			r.end()
		})
	}
}

// A proxy that ends loses no lock by a renewal that fails for that.
func TestRenewalWhileTheProxyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := renewing(t, func() string {
			time.Sleep(2 * time.Minute) // the lock has run out by then
			return "-LOADING Redis is loading the dataset in memory\r\n"
		})
		time.Sleep(30 * time.Second)
		r.bg.Timers.Close()
		time.Sleep(3 * time.Minute)
		r.end()
	})
}
