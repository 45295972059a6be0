package proxy

import (
	"container/heap"
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

const (
	maxSettling    = 10000           // locks looked after at once; more are dropped, which is logged
	settleTimeout  = 2 * time.Second // of one look
	settleConnIdle = 5 * time.Second // before a connection is given up
)

// settler looks a few times after each lock that was taken over from an expired plain client, and puts its timestamp right.
// It has connections of its own, one for each identity, since the taker may close its connection, or block it, at once.
type settler struct {
	upstream *passthrough.Upstream
	log      hclog.Logger
	added    chan *settling
	due      dueQueue
	conns    map[passthrough.Identity]*settleConn
}

// settling is one lock being looked after.
type settling struct {
	lockcmd.Takeover
	as    passthrough.Identity
	taken time.Time
	look  int
	at    time.Time
}

type settleConn struct {
	single
	used time.Time
}

func newSettler(upstream *passthrough.Upstream, log hclog.Logger) *settler {
	return &settler{upstream: upstream, log: log, added: make(chan *settling, 256), conns: map[passthrough.Identity]*settleConn{}}
}

// add begins to look after t, whose taker was as. It never waits.
func (s *settler) add(t lockcmd.Takeover, as passthrough.Identity) {
	as.Proto = 2
	item := &settling{Takeover: t, as: as, taken: time.Now()}
	select {
	case s.added <- item:
	default:
		s.log.Warn("too many locks are being taken over at once: one is not looked after while it settles", "key", t.Key)
	}
}

// run does the looks when they are due, until ctx ends.
func (s *settler) run(ctx context.Context) {
	defer s.closeIdle(time.Time{})
	timer := time.NewTimer(settleConnIdle)
	for {
		select {
		case <-ctx.Done():
			return
		case item := <-s.added:
			s.schedule(item)
		case <-timer.C:
			s.lookAtDue(ctx)
		}
		wait := settleConnIdle
		if len(s.due) > 0 {
			wait = time.Until(s.due[0].at)
		}
		timer.Reset(wait)
	}
}

func (s *settler) schedule(item *settling) {
	after, ok := lockcmd.NextLook(item.look)
	if !ok {
		return
	}
	if len(s.due) >= maxSettling {
		s.log.Warn("too many locks are settling: one is not looked after", "key", item.Key)
		return
	}
	item.at = item.taken.Add(after)
	item.look++
	heap.Push(&s.due, item)
}

func (s *settler) lookAtDue(ctx context.Context) {
	now := time.Now()
	for len(s.due) > 0 && !s.due[0].at.After(now) && ctx.Err() == nil {
		item := heap.Pop(&s.due).(*settling)
		if s.lookAt(ctx, item) {
			s.schedule(item)
		}
	}
	s.closeIdle(now.Add(-settleConnIdle))
}

// lookAt looks once and reports whether there is more to look after.
func (s *settler) lookAt(ctx context.Context, item *settling) (more bool) {
	conn, err := s.conn(ctx, item.as)
	if err == nil {
		var corrected, over bool
		corrected, over, err = lockcmd.Settle(conn.single, item.Takeover)
		if corrected {
			s.log.Info("put right the timestamp of a lock that a plain client had lost and overwritten", "key", item.Key, "token", item.Token)
		}
		if err == nil {
			return !over
		}
		conn.conn.Close()
		delete(s.conns, item.as)
	}
	s.log.Warn("cannot look after a lock while it settles", "key", item.Key, "error", err)
	return true
}

func (s *settler) conn(ctx context.Context, as passthrough.Identity) (*settleConn, error) {
	conn := s.conns[as]
	if conn == nil {
		ctx, cancel := context.WithTimeout(ctx, settleTimeout)
		defer cancel()
		opened, err := s.upstream.Single(ctx, as)
		if err != nil {
			return nil, err
		}
		conn = &settleConn{single: single{opened, settleTimeout}}
		s.conns[as] = conn
	}
	conn.used = time.Now()
	return conn, nil
}

// closeIdle closes the connections not used since; all of them if since is zero.
func (s *settler) closeIdle(since time.Time) {
	for as, conn := range s.conns {
		if since.IsZero() || conn.used.Before(since) {
			conn.conn.Close()
			delete(s.conns, as)
		}
	}
}

// dueQueue is a heap of what is looked at next.
type dueQueue []*settling

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q dueQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *dueQueue) Push(x any)        { *q = append(*q, x.(*settling)) }
func (q *dueQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return last
}
