package held

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/names"
	"lockproxy/internal/test/testwait"
	"lockproxy/lockcmd/background"
)

func newTestSessions(t *testing.T) *Sessions {
	jobs := &background.Jobs{Log: hclog.NewNullLogger(), Timers: background.NewTimers(),
		Clients: background.NewClients(nil, false)}
	t.Cleanup(jobs.Timers.Close)
	return NewSessions(jobs, NewRegistry(func(*Lock) {}), &names.Filter{}, nil)
}

// Questions about many locks wait for the answers to others, and each is asked.
func TestQuestionsWaitForAnswers(t *testing.T) {
	s := newTestSessions(t)
	answer, asking, most, asked := make(chan struct{}), atomic.Int32{}, atomic.Int32{}, atomic.Int32{}
	const locks = 10*maxVerifying + 1
	for i := range locks {
		s.ask(fmt.Sprint(i), func(context.Context) {
			now := asking.Add(1)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); {
				seen = most.Load()
			}
			<-answer
			asking.Add(-1)
			asked.Add(1)
		})
	}
	testwait.Until(t, "as many as allowed are asked", func() bool {
		return asking.Load() == maxVerifying
	})
	close(answer)
	testwait.Until(t, "all are asked", func() bool { return asked.Load() == locks })
	if most.Load() > maxVerifying {
		t.Errorf("%d at a time", most.Load())
	}
}

// A lock is found by its hash as long as a session has it.
func TestSessionLocksAreFoundByHash(t *testing.T) {
	s := newTestSessions(t)
	a, b := names.Lock{Key: "a"}, names.Lock{DB: 1, Key: "a"}
	find := func(id names.Lock, want int) {
		t.Helper()
		if got := s.byHash[id.Hash()]; got.n != want || want > 0 && got.Lock != id {
			t.Errorf("%v: %+v, want %d sessions", id, got, want)
		}
	}
	find(a, 0)
	s.Count(a, 1)
	s.Count(a, 1)
	s.Count(b, 1)
	s.Count(a, -1)
	find(a, 1)
	find(b, 1)
	s.Count(a, -1)
	find(b, 1)
	if len(s.byHash) != 1 {
		t.Errorf("%+v", s.byHash)
	}
}
