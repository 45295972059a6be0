package admin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"lockproxy/internal/admin"
	"lockproxy/internal/testwait"
	"lockproxy/proxy"
)

// The waits for locks are a profile whose stacks say who waited for which lock, and who had it.
func TestLockProfile(t *testing.T) {
	s := startSite(t, func(a *admin.Config, p *proxy.Config) {
		remembering(a, p)
		a.Pprof = true
	})
	c := s.client()
	s.lock(c, "order:17", 30, "OWNER", "anna")
	waited := make(chan error, 1)
	go func() { // ends with the lock's release
		waited <- s.client().Do(ctx, "LOCK", "order:17", 30, "WAIT", 20, "OWNER", "bert").Err()
	}()
	testwait.Until(t, "bert waits", func() bool {
		return len(c.Do(ctx, "LOCKINFO", "order:17", "WAITERS").Val().([]any)) == 1
	})
	if err := s.client().Do(ctx, "LOCK", "order:17", 30, "WAIT", 1).Err(); err == nil {
		t.Fatal("two hold the lock")
	}
	profiled := func() map[string]int64 {
		t.Helper()
		_, text := s.get("/debug/locks/pprof")
		p, err := profile.ParseData([]byte(text)) // as go tool pprof does
		if err == nil {
			err = p.CheckValid()
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(p.SampleType) != 2 || p.SampleType[1].Type != "delay" ||
			p.SampleType[1].Unit != "nanoseconds" || p.DefaultSampleType != "delay" ||
			p.DurationNanos < int64(time.Second) {
			t.Errorf("%v", p)
		}
		delays := map[string]int64{}
		for _, sample := range p.Sample {
			var names []string
			for _, l := range sample.Location {
				names = append([]string{l.Line[0].Function.Name}, names...)
			}
			if sample.Value[0] != 1 {
				t.Errorf("%v: %d waits", names, sample.Value[0])
			}
			delays[strings.Join(names, " | ")] = sample.Value[1] / int64(time.Millisecond)
		}
		return delays
	}
	const stack = " | shape order:* | key order:17 | holder anna"
	bert, nobody := "waiter bert"+stack, "waiter 127.0.0.1"+stack
	got := profiled() // bert waits still
	if len(got) != 2 || got[bert] < 1000 || got[nobody] < 1000 || got[nobody] > 10000 {
		t.Errorf("%v", got)
	}
	if err := c.Do(ctx, "UNLOCK", "order:17", "FORCE").Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	if after := profiled(); len(after) != 2 || after[bert] < got[bert] ||
		after[nobody] != got[nobody] {
		t.Errorf("%v, before %v", after, got)
	}
}
