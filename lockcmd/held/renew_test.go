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

// The connection that tracked a session lock's key may have failed. So each renewal has the key
// tracked again: otherwise the client would learn of a DEL only at the next one.
func TestRenewalTracksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connect := func(names.Identity) *redis.Client {
			return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2,
				DisableIdentity: true, MaxRetries: -1, Dialer: virtualnet.Ones})
		}
		bg := &background.Jobs{Timers: background.NewTimers(), Log: hclog.NewNullLogger(),
			Clients: background.NewClients(connect, false), Scripts: script.NewMaker(script.Config{})}
		registry, _ := testRegistry()
		s := NewSessions(bg, registry, func(journal.Kind, *Lock, bool) {})
		tracked := make(chan string, 10)
		track := func(_ names.Identity, key string) { tracked <- key }
		r := NewRenewals(s, func(names.Identity, string) {}, track, func(*Lock) {})
		h := &Holder{Connection: "c", LockLost: func(string, int64) { t.Error("the lock is lost") }}
		lock := &Lock{Token: 7, Request: script.Request{
			Key: "job", Timeout: time.Minute, Session: true, Connection: "c", Number: "1"}}
		lock.TakenBy(h, time.Now())
		registry.Put(lock)
		r.Hold(h, lock)
		for _, when := range []string{"it is new", "it has been renewed", "it has been again"} {
			if key := <-tracked; key != "job" {
				t.Errorf("%s: %s is tracked", when, key)
			}
		}
		h.Leave(registry)
		bg.Timers.Close()
		bg.Clients.Close()
	})
}
