//go:build linux && !race

package check_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/faults/check"
	"lockproxy/internal/test/faults/client"
	"lockproxy/internal/test/faults/history"
)

// enough returns when clients have worked for that long and have taken that many locks. On a busy
// machine the time alone says little about how much has happened.
func enough(notes *history.Recorder, long time.Duration, locks int64) {
	time.Sleep(long)
	for end := time.Now().Add(time.Minute); notes.Taken() < locks && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
	}
}

// judge lets clients work with a server for a while and checks what they saw.
func judge(t *testing.T, b bugs) check.Report {
	s := startServer(t, b)
	var targets []client.Target
	for i, addr := range s.addrs {
		targets = append(targets, client.Target{Proxy: i, Addr: addr})
	}
	notes := &history.Recorder{}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var working sync.WaitGroup
	for i := range 10 {
		l := &client.Locker{ID: i, Targets: targets, Keys: []string{"a", "b"},
			Random: rand.New(rand.NewPCG(7, uint64(i))), Notes: notes,
			Think: 10 * time.Millisecond, Shortest: 50 * time.Millisecond,
			Longest: 300 * time.Millisecond, Sessions: 30}
		switch { // makes what shows the bug happen often
		case b.silentSessions:
			l.Sessions = 100
		case b.unfenced:
			l.Late = 50
		case b.sleeps:
			l.Forgotten = 50
		}
		if i > 7 {
			l.Keys = []string{"mortal"}
		}
		working.Go(func() { l.Run(ctx) })
	}
	mortals := 2
	if b.sleeps { // they would take the lock for which no other waiter is woken
		mortals = 0
	}
	for i := range mortals {
		m := &client.Mortal{ID: 100 + i, Targets: targets, Key: "mortal",
			Random: rand.New(rand.NewPCG(8, uint64(i))), Notes: notes, Timeout: time.Minute,
			Short: 300 * time.Millisecond}
		working.Go(func() { m.Run(ctx) })
	}
	for i := range 3 {
		p := &pusher{id: 200 + i, target: targets[i%2], notes: notes}
		working.Go(func() { p.run(ctx) })
	}
	enough(notes, 8*time.Second, 150)
	stop()
	working.Wait()
	// A lock that a dead client keeps is not told by waits that the end has cut short.
	client.Probe(notes, 300, targets[0], "mortal", 4*time.Second)
	s.mu.Lock()
	for name, values := range s.lists {
		notes.Add(history.Op{Kind: history.List, Key: name, Outcome: history.OK,
			Got: strings.Join(values, "\n"), Call: history.Now()})
	}
	s.mu.Unlock()
	bounds := check.DefaultBounds()
	bounds.Idle, bounds.Notice, bounds.Arrival = 2500*time.Millisecond, 100*time.Millisecond,
		200*time.Millisecond
	return check.Check(history.History{Ops: notes.Drain()}, bounds)
}

// pusher sends commands that have one right answer.
type pusher struct {
	id     int
	target client.Target
	notes  client.Noter
}

func (p *pusher) run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		c, err := client.Dial(p.target.Addr)
		if err != nil {
			return
		}
		for ok := true; ok && ctx.Err() == nil; n++ {
			list, value := fmt.Sprint("list:", p.id), fmt.Sprintf("%d-%d", p.id, n)
			ok = p.ask(c, history.Op{Kind: history.Push, Key: list, Value: value, Want: ":1"},
				"RPUSH", list, value) &&
				p.ask(c, history.Op{Kind: history.Echo, Want: value}, "ECHO", value)
			time.Sleep(time.Millisecond)
		}
		c.Close()
	}
}

func (p *pusher) ask(c *client.Conn, o history.Op, args ...string) bool {
	o.Client = p.id
	op := p.notes.Begin(o)
	r, err := c.Do(2*time.Second, args...)
	p.notes.End(op, func(op *history.Op) {
		op.Got = r.String()
		switch {
		case err != nil:
		case op.Got == op.Want:
			op.Outcome = history.OK
		default:
			op.Outcome = history.Garbled
		}
	})
	return err == nil
}

// mostHistories is how many histories a service gets to show its bug, or that it has none. In some,
// the two things that the bug needs never meet. In others the machine delays a request so long that
// it seems to be overtaken.
const mostHistories = 8

// asExpected reports whether one of the rules was broken. A service without a bug has no rules.
func asExpected(r check.Report, rules []string) bool {
	if rules == nil {
		return len(r.Violations) == 0
	}
	return slices.ContainsFunc(r.Violations, func(v check.Violation) bool {
		return slices.Contains(rules, v.Rule)
	})
}

// The checker names each bug of a service, and finds nothing in a service without one.
func TestBrokenServersAreCaught(t *testing.T) {
	services := []struct {
		name  string
		bugs  bugs
		rules []string // one of them must object
	}{
		{"no bug", bugs{}, nil},
		{"no owner check on release", bugs{noOwnerCheck: true}, []string{"exclusion", "lost"}},
		{"release without comparing tokens", bugs{noCompare: true}, []string{"stale", "exclusion"}},
		{"expiry by the clock of the proxy that is asked", bugs{clientClock: true},
			[]string{"exclusion", "lost"}},
		{"tokens count from 1 again", bugs{counterResets: true}, []string{"tokens"}},
		{"two locks with one token", bugs{sameToken: true}, []string{"tokens"}},
		{"swapped replies", bugs{swapsReplies: true}, []string{"answer"}},
		{"last come, first served", bugs{lifo: true}, []string{"fifo"}},
		{"locks kept by dead waiters", bugs{deadKeep: true}, []string{"idle"}},
		{"fences that accept every token", bugs{unfenced: true}, []string{"stale", "order"}},
		{"session locks end unannounced", bugs{silentSessions: true}, []string{"exclusion"}},
		{"locks that end early", bugs{forgets: true}, []string{"exclusion", "lost"}},
		{"writes done twice", bugs{doublesWrites: true}, []string{"writes"}},
		{"writes lost", bugs{losesWrites: true}, []string{"writes"}},
		{"reads of the previous value", bugs{staleReads: true}, []string{"fence"}},
		{"releases that wake no waiter", bugs{sleeps: true}, []string{"idle"}},
	}
	reports := make([]check.Report, len(services))
	var all sync.WaitGroup
	for i, s := range services {
		all.Go(func() {
			for try := 0; try == 0 || try < mostHistories && !asExpected(reports[i], s.rules); try++ {
				reports[i] = judge(t, s.bugs)
			}
		})
	}
	all.Wait()
	for i, s := range services {
		t.Run(s.name, func(t *testing.T) {
			found := map[string]string{}
			for _, v := range reports[i].Violations {
				if found[v.Rule] == "" {
					found[v.Rule] = v.Text
				}
			}
			t.Log(found, reports[i].Checked, reports[i].Undecided)
			if s.rules != nil {
				if !asExpected(reports[i], s.rules) {
					t.Errorf("none of the rules %q has objected", s.rules)
				}
				return
			}
			if len(found) > 0 {
				t.Error("a service without a bug is accused of", found)
			}
			for _, rule := range []string{"exclusion", "tokens", "stale", "lost", "fifo", "fence",
				"order", "idle", "answer", "writes"} {
				if reports[i].Checked[rule] == 0 {
					t.Errorf("rule %q was never applied", rule)
				}
			}
		})
	}
}
