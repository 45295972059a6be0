package admin_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/admin"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// remembering has the proxy remember what happens to locks.
func remembering(a *admin.Config, p *proxy.Config) {
	p.Locks.History, a.MetricShapes = 1<<20, 5
}

func (s *site) json(path string, into any) {
	s.t.Helper()
	status, text := s.get(path)
	if err := json.Unmarshal([]byte(text), into); status != 200 || err != nil {
		s.t.Fatalf("%s: %d, %v: %s", path, status, err, text)
	}
}

// If a lock was taken through one proxy and clients wait for it at another, each names the other.
func TestProxiesOfALock(t *testing.T) {
	t.Parallel()
	here := startSite(t, nil)
	there := startSiteAt(t, here.redis, nil)
	here.lock(here.client(), "job", 600)
	go there.waiter().Do(ctx, "LOCK", "job", 600, "WAIT", 600) // ends with the proxy
	for of, want := range map[*site][]string{here: {there.proxy.ID()}, there: {}} {
		var one struct {
			Through string
			Others  []string
		}
		testwait.Until(t, "the proxies", func() bool {
			of.json("/api/lock?key=job", &one)
			return one.Through == here.proxy.ID() && slices.Equal(one.Others, want)
		})
	}
	here.client().Do(ctx, "UNLOCK", "job", "FORCE")
}

// One lock, with its holder, its queue, what it cost and what happened; and the same of all locks.
func TestOneLock(t *testing.T) {
	s := startSite(t, remembering)
	c := s.client()
	s.lock(c, "job:1", 600, "OWNER", "anna")
	s.lock(c, "job:2", 600)
	waited := make(chan error, 1)
	go func() { // ends with the lock's release
		waited <- s.waiter().Do(ctx, "LOCK", "job:1", 600, "WAIT", 600, "OWNER", "bert").Err()
	}()
	type cost struct {
		Key    string
		WaitMS int64 `json:"wait_ms"`
		Waits  int
		Blame  []struct {
			Holder string
			WaitMS int64 `json:"wait_ms"`
		}
	}
	type event struct{ Event, Key, Owner string }
	var one struct {
		Holder  struct{ Owner string }
		Waiters []struct {
			Owner    string
			WaitedMS int64 `json:"waited_ms"`
			LeftMS   int64 `json:"left_ms"`
		}
		Five   cost `json:"last_5_minutes"`
		Sixty  cost `json:"last_60_minutes"`
		Events []event
	}
	testwait.Until(t, "it has waited", func() bool {
		s.json("/api/lock?key=job:1", &one) // a Redis that stops answers between these two figures
		return one.Five.WaitMS >= 300 && len(one.Waiters) == 1 && one.Waiters[0].WaitedMS >= 250
	})
	if w := one.Waiters; one.Holder.Owner != "anna" || w[0].Owner != "bert" ||
		w[0].LeftMS < 10000 || one.Sixty.WaitMS < 250 ||
		len(one.Five.Blame) != 1 || one.Five.Blame[0].Holder != "anna" ||
		one.Five.Blame[0].WaitMS != one.Five.WaitMS || len(one.Events) != 1 {
		t.Errorf("%+v", one)
	}
	var top []cost
	s.json("/api/top?limit=1", &top)
	if len(top) != 1 || top[0].Key != "job:1" || top[0].Waits != 1 {
		t.Errorf("top: %+v", top)
	}
	s.json("/api/top?shapes=1&by=count", &top)
	if len(top) != 1 || top[0].Key != "job:*" {
		t.Errorf("shapes: %+v", top)
	}
	if got := s.scrape()["lockproxy_lock_oldest_wait_seconds"]; got == "0" || got == "" {
		t.Errorf("the oldest wait in the metrics: %q", got)
	}
	const shape = `lockproxy_lock_shape_acquired{db="0",shape="job:*"}`
	if got := s.scrape()[shape]; got != "2" {
		t.Errorf("%s is %q", shape, got)
	}
	if err := c.Do(ctx, "UNLOCK", "job:1", "FORCE").Err(); err != nil {
		t.Fatal(err)
	}
	if err := testwait.For(t, "the waiter's lock", waited); err != nil {
		t.Fatal(err)
	}
	var log []event
	s.json("/api/log?limit=2", &log)
	if len(log) != 2 || log[0] != (event{"acquired", "job:1", "bert"}) ||
		log[1] != (event{"forced", "job:1", "anna"}) {
		t.Errorf("log: %+v", log)
	}
	s.json("/api/log?db=0&key=job:2", &log)
	if len(log) != 1 || log[0].Key != "job:2" {
		t.Errorf("log of one lock: %+v", log)
	}
	if s.json("/api/log?db=7&key=job:2", &log); len(log) != 0 {
		t.Errorf("log of another database: %+v", log)
	}
	if status, _ := s.get("/api/lock"); status != 400 {
		t.Errorf("/api/lock without a key: %d", status)
	}
}

// While no client asks for anything, the probe finds that the upstream is down, and serves again:
// the page, the metrics and /readyz say the same.
func TestIdleProxyProbesItsUpstream(t *testing.T) {
	s := startSite(t, nil)
	up := func() (answers string) {
		_, metrics := s.get("/metrics")
		answers = "metrics down, "
		if strings.Contains(metrics, "\nlockproxy_upstream_up 1\n") {
			answers = "metrics up, "
		}
		if status, _ := s.get("/readyz"); status == 200 {
			return answers + "ready"
		}
		return answers + "not ready"
	}
	await := func(want string) {
		t.Helper()
		testwait.Until(t, want, func() bool { return up() == want })
	}
	await("metrics up, ready")
	s.redis.Pause()
	await("metrics down, not ready")
	s.redis.Resume()
	await("metrics up, ready")
}

// A lock in another database is listed, however many are held in the first.
func TestLockBehindManyOfAnotherDatabase(t *testing.T) {
	s := startSite(t, nil)
	c := s.client()
	pipe := c.Pipeline()
	for i := range 3000 {
		pipe.Do(ctx, "LOCK", i, 600)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	other := s.client().Conn()
	defer other.Close()
	if err := other.Select(ctx, 3).Err(); err != nil {
		t.Fatal(err)
	}
	if err := other.Do(ctx, "LOCK", "in-db-3", 600).Err(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the lock in database 3 is listed",
		func() bool { return s.locks("?filter=in-db").Matching == 1 })
}
