//go:build faults && linux

package faults_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"lockproxy/internal/test/faults/history"
	"lockproxy/internal/test/proxytest"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// fault is done to a Cluster or a Group while clients work.
type fault[S any] struct {
	name string
	// loses says that acknowledged writes can be lost,
	// since a replica that lacks them can replace a master.
	loses bool
	// replaces says that a replica replaces a master by vote.
	replaces bool
	// do returns when all is served again, and what mends the rest, or nil. key is a lock that is
	// in use.
	do func(t *testing.T, u *underWork[S], key string) (mend func())
}

// breaks is what can be untrue of the history because of a fault. It leaves out what is never
// allowed, and what is counted.
func (f fault[S]) breaks() history.Breaks {
	return history.Breaks{Service: true, Orphans: true, Writes: f.loses}
}

// underWork is a Cluster or a Group behind two proxies with --min-replicas and two without.
type underWork[S any] struct {
	servers     S
	proxies     [4]*proxytest.Proxy
	plain, safe *work
}

// startUnderWork starts the proxies. replicas is how many can take a master's place.
func startUnderWork[S any](t *testing.T, servers S, url string, replicas int) *underWork[S] {
	u := &underWork[S]{servers: servers}
	for i := range u.proxies {
		u.proxies[i] = proxytest.Start(t, url, func(cfg *proxy.Config) {
			if i >= 2 {
				cfg.Locks.Durability = lockcmd.Durability{MinReplicas: replicas,
					ReplicaTimeout: 300 * time.Millisecond}
			}
		})
	}
	return u
}

// work starts clients, whose locks are named by round.
func (u *underWork[S]) work(t *testing.T, round string, seed uint64) {
	u.plain = startWork(t, "plain"+round, seed, u.proxies[:2]...)
	u.safe = startWork(t, "safe"+round, seed+1, u.proxies[2:]...)
	u.goOn(t, afterFault)
}

// How many locks clients of each work take between faults, and in the midst of some. In front of a
// Cluster or a Group that has voted they take more: for a while there is no other vote about the
// same master.
const (
	afterReplacing = 1
	betweenSteps   = 5
	afterFault     = 10
	afterVote      = 20
)

// goOn returns when the clients of both works have taken n locks more.
func (u *underWork[S]) goOn(t *testing.T, n int64) {
	t.Helper()
	u.plain.goOn(t, n)
	u.safe.goOn(t, n)
}

// inflict does a fault to each of some locks.
func (u *underWork[S]) inflict(t *testing.T, f fault[S], keys ...string) {
	t.Helper()
	for _, key := range keys {
		from := history.Now()
		if mend := f.do(t, u, key); mend != nil {
			mend()
		}
		for _, noted := range []*work{u.plain, u.safe} {
			noted.during(f.name, from, history.Now(), f.breaks())
			if f.replaces {
				noted.replacements = append(noted.replacements, replacement{from, history.Now()})
			}
		}
		if f.replaces {
			u.goOn(t, afterVote)
		} else {
			u.goOn(t, afterFault)
		}
	}
}

// keys are the first n locks of both works.
func (u *underWork[S]) keys(n int) []string {
	return append(u.plain.keys[:n:n], u.safe.keys[:n]...)
}

// finish judges both. loses says that locks without --min-replicas can have been lost.
func (u *underWork[S]) finish(t *testing.T, loses bool) (plain, safe figures) {
	t.Helper()
	u.goOn(t, afterVote) // beyond the time in which effects of a fault are excused
	return u.judge(t, u.plain, loses, loses), u.judge(t, u.safe, loses, false)
}

func (u *underWork[S]) judge(t *testing.T, w *work, losesWrites, losesLocks bool) figures {
	t.Helper()
	v := w.end()
	found := v.figures()
	t.Logf("%s: %v%s", w.name, found, v.timeline())
	for kind, n := range found.taken {
		if n == 0 {
			t.Errorf("%s: no lock of the kind %s was taken", w.name, kind)
		}
	}
	violated := false
	report := func(allowed bool, rules ...string) {
		t.Helper()
		for _, text := range v.broken(rules...) {
			if allowed {
				t.Logf("found in %s: %s", w.name, text)
			} else {
				t.Errorf("%s: %s", w.name, text)
				violated = true
			}
		}
	}
	report(false, "answer", "hang", "tokens", "service", "writes")
	report(losesWrites, "fifo") // a failover can upset the order
	report(losesLocks, "exclusion", "limit", "lost", "stale", "order", "fence", "idle")
	if violated {
		path := filepath.Join(os.TempDir(),
			fmt.Sprintf("violation-%d-%s.jsonl", os.Getpid(), w.name))
		t.Logf("the history, which locktools soak check judges again: %s %v", path, v.h.Save(path))
	}
	return found
}
