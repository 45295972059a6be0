package lockcmd

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/internal/test/virtualnet"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// newTestLocks returns Locks without an upstream.
func newTestLocks() *Locks {
	connect := func(names.Identity) *redis.Client { return nil }
	return New(Config{}, "proxy", connect, hclog.NewNullLogger())
}

// slowSession answers each script with what meanwhile returns. That is called while the script is
// under way.
type slowSession struct {
	holder    held.Holder
	meanwhile func() []int64
	err       error
}

func (s *slowSession) Eval(*script.Call) (a script.Answer, err error) {
	a.Type = '*'
	for _, n := range s.meanwhile() {
		a.Elems = append(a.Elems, resp.Value{Type: ':', Int: n})
	}
	return a, s.err
}

// Get implements chain.Upstream: there is no value.
func (s *slowSession) Get(string, time.Time) (resp.Value, error) {
	return resp.Value{Type: '_'}, nil
}

// session is what a command that waits sees of it.
func (s *slowSession) session() session { return session{Client{Holder: &s.holder}, s} }

// A release gives the lock to a waiter while its poll is under way, and the lease ends before the
// poll runs and takes the lock again. Then the waiter has the second token: the first is worth
// nothing, and nobody else knows the second.
func TestPollBehindGrant(t *testing.T) {
	for _, c := range []struct {
		what            string
		granted, polled int64
	}{
		{what: "the poll ran after the grant had ended", granted: 100, polled: 200},
		{what: "the poll found the grant", granted: 100, polled: 100},
		{
			what:    "the poll ran first, and a forced release gave the lock again",
			granted: 200, polled: 100,
		},
		{what: "the poll found the lock held", granted: 100, polled: 0},
	} {
		l := newTestLocks()
		id := names.Lock{DB: 0, Key: "job"}
		r := script.Request{Key: id.Key, Connection: "c", Number: "1"}
		for name, step := range map[string]func(s session, w *queue.Waiter) error{
			"poll":  func(s session, w *queue.Waiter) error { _, err := l.poll(s, w, false); return err },
			"check": func(s session, w *queue.Waiter) error { return l.check(s, w) },
		} {
			w, _ := l.queues.Join(r, names.Identity{}, 0, time.Now())
			s := &slowSession{meanwhile: func() []int64 {
				l.queues.Of(id).Offer(names.Identity{}, true, time.Now()).End(
					queue.Released{Done: true, Token: c.granted, Given: 1}, time.Now())
				if c.polled == 0 {
					return []int64{0, 0, 1000}
				}
				return []int64{c.polled, 0}
			}}
			want := max(c.granted, c.polled)
			if err := step(s.session(), w); err != nil || !w.State().Has || w.Token != want {
				t.Errorf("%s: %s: error %v, has it: %t, token %d, want %d",
					c.what, name, err, w.State().Has, w.Token, want)
			}
			w.End(nil)
		}
		l.Close()
	}
}

// askingError calls ask whenever somebody looks at what it is.
type askingError struct{ ask func() }

func (askingError) Error() string { return "lost" }

func (e askingError) As(any) bool {
	e.ask()
	return false
}

// The first waiter's poll fails after a long silence. A waiter whose time has expired at this
// moment is not told that the lock is held: the queue has noted the failure before the poll ends.
func TestOutageAsAPollFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLocks()
		defer l.Close()
		r := script.Request{Key: "job", Connection: "c", Number: "1"}
		w, _ := l.queues.Join(r, names.Identity{}, 0, time.Now())
		asked := 0
		ask := func() {
			asked++
			if err, _ := w.Outage(time.Now()); err == nil {
				t.Error("no poll is under way, and none has failed")
			}
		}
		s := &slowSession{err: askingError{ask}, meanwhile: func() []int64 {
			time.Sleep(time.Minute)
			return nil
		}}
		if _, err := l.pollOrPause(s.session(), w); err == nil || asked == 0 {
			t.Errorf("%v, and asked %d times", err, asked)
		}
		ask()
	})
}

// An owner that asks again in a grace period, and is not the first waiter, learns of the grace
// period: its proxy repairs the timestamp if the other proxy has ended.
func TestCheckFindsGracePeriod(t *testing.T) {
	l := newTestLocks()
	defer l.Close()
	r := script.Request{Key: "job", Connection: "c", Number: "1", Owner: "o"}
	w, _ := l.queues.Join(r, names.Identity{}, 0, time.Now())
	s := &slowSession{meanwhile: func() []int64 { return []int64{200, 2, 1} }}
	if err := l.check(s.session(), w); err != nil || w.Token != 200 || !w.TakenOver || !w.Renewed {
		t.Errorf("error %v, %+v", err, w.Attempt)
	}
}

// Whatever an upstream answers to a script, it is no reason to end.
func TestForeignAnswers(t *testing.T) {
	connect := func(names.Identity) *redis.Client {
		return redis.NewClient(&redis.Options{MaxRetries: -1, DialerRetries: 1,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				return nil, errors.New("no connections here")
			}})
	}
	l := New(Config{MaxTimeout: time.Minute}, "proxy", connect, hclog.NewNullLogger())
	defer l.Close()
	integer := resp.Value{Type: ':', Int: 1}
	list := func(n int) (v resp.Value) {
		v.Type = '*'
		for range n {
			v.Elems = append(v.Elems, integer)
		}
		return v
	}
	answers := []resp.Value{integer, {Type: '+', Text: []byte("OK")}, {Type: '_'}, list(0), list(1),
		list(2), list(3), list(4), list(5), list(6), {Type: '*', Elems: []resp.Value{{Type: '-'}}}}
	for _, command := range []string{
		"LOCK a 60", "LOCK a 60 WAIT 0.01", "LOCK a 60 SHARED", "LOCKALL 60 2 a b",
		"LOCKALL 60 2 a b WAIT 0.01", "UNLOCK a", "UNLOCK a FORCE", "UNLOCKALL 1 2 a b",
		"UNLOCKALL 1 1 a", "RELOCK a 1 60", "LOCKINFO a", "LOCKINFO a HOLDERS", "LOCKINFO a WAITERS",
	} {
		var args [][]byte
		for word := range strings.FieldsSeq(command) {
			args = append(args, []byte(word))
		}
		for i, spec := range syntax.Specs {
			if !strings.EqualFold(spec.Name, string(args[0])) {
				continue
			}
			for _, v := range answers {
				runAll(t.Context(), l, &syntax.Specs[i], &fixedSession{answer: v}, args)
			}
		}
	}
}

// runAll runs a command that asks for scripts.
func runAll(
	ctx context.Context, l *Locks, spec *syntax.Spec, on chain.Upstream, args [][]byte,
) Reply {
	step := l.Begin(spec, Client{Holder: &held.Holder{LockLost: func(string, int64) {}}}, args)
	if step.Wait != nil {
		return goOn(ctx, func(wake func()) chain.Turn { return step.Wait(ctx, on, wake) })
	}
	return chain.Drive(on, Reply{}, step)
}

// goOn takes a turn on to its reply.
func goOn(ctx context.Context, begin func(wake func()) chain.Turn) Reply {
	woken := make(chan struct{}, 1)
	t := begin(func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	for {
		reply, progress := t.Go(ctx, false)
		if progress == chain.Ended {
			return reply
		}
		var due <-chan time.Time
		if at := t.Due(); !at.IsZero() {
			due = time.After(time.Until(at))
		}
		select {
		case <-woken:
		case <-due:
		case <-ctx.Done():
		}
	}
}

// fixedSession gives each script the same answer.
type fixedSession struct {
	slowSession
	answer resp.Value
}

func (s *fixedSession) Eval(*script.Call) (script.Answer, error) {
	return script.Answer{Value: s.answer}, nil
}

// A deadlock is found as a poll takes the lock: either the wait is refused and the lock released,
// or the waiter has it.
func TestDeadlockFoundAsPollTakes(t *testing.T) {
	l := newTestLocks()
	defer l.Close()
	r := script.Request{Key: "job", Connection: "c", Number: "1", Owner: "o"}
	for range 2000 {
		w, _ := l.queues.Join(r, names.Identity{}, 0, time.Now())
		refused, released := make(chan bool, 1), false
		cycle := deadlock.NewError([]deadlock.Step{{Owner: "o", Key: "job"}})
		polls := 0
		s := &slowSession{meanwhile: func() []int64 {
			if polls++; polls > 1 {
				released = true
				return []int64{1, 0, 0}
			}
			go func() { refused <- w.Refuse(cycle) }()
			runtime.Gosched()
			return []int64{200, 0}
		}}
		_, err := l.poll(s.session(), w, false)
		if no := <-refused; no != (err != nil) || no != released || no == w.State().Has {
			t.Fatalf("refused: %v, released: %v, error %v, has it: %t", no, released, err,
				w.State().Has)
		}
		w.End(nil)
	}
}

// A waiter is given the value while its check of the owner's claim is under way, and it was the
// last in the queue. Whatever the check answers then, its client is told the value, and a claim
// that came with the answer is released.
func TestServedWhileItChecks(t *testing.T) {
	for _, answer := range [][]int64{{0, 0, 1000}, {200, 0, 1}, {200, 0}, {-1, 0}} {
		l := newTestLocks()
		request := func(connection string) script.Request {
			return script.Request{Key: "claim", Once: true, Value: "page", Owner: "o", Number: "1",
				Connection: connection}
		}
		maker, _ := l.queues.Join(request("maker"), names.Identity{}, 0, time.Now())
		value, scripts := "text", 0
		s := &slowSession{meanwhile: func() []int64 {
			if scripts++; scripts > 1 {
				return []int64{1, 0, 0} // the release
			}
			maker.Serve(&value, time.Now())
			maker.End(nil)
			return answer
		}}
		ctx := t.Context()
		reply := goOn(ctx, func(wake func()) chain.Turn {
			return l.wait(ctx, s.session(), request("waiter"), 0, wake)
		})
		if string(reply.Text) != value || reply.Err != nil {
			t.Errorf("%v: the client is told %+v", answer, reply)
		}
		if released := scripts == 2; released != (answer[0] > 0) {
			t.Errorf("%v: %d scripts", answer, scripts)
		}
		l.Close()
	}
}

// The upstream is replaced while a poll takes the lock. The lock is released, and the client learns
// that at once: not that nothing was sent. Other waiters wait on.
func TestReplacedAsPollTakes(t *testing.T) {
	l := newTestLocks()
	defer l.Close()
	l.common.cfg.FailoverHold = time.Minute
	r := script.Request{Key: "job", Connection: "c", Number: "1"}
	w, _ := l.queues.Join(r, names.Identity{}, 0, time.Now())
	l.queues.Join(r, names.Identity{}, 0, time.Now()) // another
	scripts := 0
	s := &slowSession{meanwhile: func() []int64 {
		if scripts++; scripts == 1 {
			l.FailedOver()
			return []int64{200, 0}
		}
		return []int64{1, 0, 0}
	}}
	_, err := l.pollOrPause(s.session(), w)
	if err == nil || strings.Contains(err.Error(), "nothing was sent") || failure.MayHaveRun(err) {
		t.Errorf("error %v", err)
	}
	failing, _ := w.Outage(time.Now())
	if at := w.State(); scripts != 2 || at.Waits || at.Has || failing != nil {
		t.Errorf("%d scripts, waits: %t, failing %v", scripts, at.Waits, failing)
	}
}

// A client hangs up at the moment at which its wait is given the lock. The lock is released,
// whichever of the two the waiter sees first: if the token were sent, not every connection would
// tell that the client has not read it.
func TestHangUpCrossesWithGrant(t *testing.T) {
	for range 32 { // the order is random
		synctest.Test(t, func(t *testing.T) {
			released := &atomic.Int32{}
			connect := countingConnect(released)
			l := New(Config{MaxTimeout: time.Hour}, "proxy", connect, hclog.NewNullLogger())
			defer l.Close()
			s := &slowSession{meanwhile: func() []int64 { return []int64{0, 0, 3600000} }}
			r := script.Request{Key: "job", Timeout: time.Hour, Connection: "c", Number: "1"}
			ctx, hangUp := context.WithCancelCause(context.Background())
			replied := make(chan Reply, 1)
			go func() { // ends with ctx
				replied <- goOn(ctx, func(wake func()) chain.Turn {
					return l.wait(ctx, s.session(), r, 0, wake)
				})
			}()
			synctest.Wait()
			offer := l.queues.Of(names.Lock{Key: r.Key}).Offer(names.Identity{}, true, time.Now())
			hangUp(failure.ErrGone)
			l.releases.startAbandoned(
				offer.End(queue.Released{Done: true, Token: 200, Given: 1}, time.Now()))
			synctest.Wait() // until what was begun has been sent
			if got := <-replied; got.Err != failure.ErrGone || got.Given != nil {
				t.Errorf("the client is told %+v", got)
			}
			if _, holds := s.holder.Holds(); holds || released.Load() == 0 {
				t.Errorf("it has the lock: %t, and %d releases", holds, released.Load())
			}
		})
	}
}

// countingConnect connects to an upstream that answers 1 to all, and counts the releases of the
// token 200 of connection "c".
func countingConnect(released *atomic.Int32) func(names.Identity) *redis.Client {
	return func(names.Identity) *redis.Client {
		dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := virtualnet.Ones(ctx, network, addr)
			return countingConn{conn, "given c/200 ", released}, err
		}
		return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2,
			DisableIdentity: true, MaxRetries: -1, Dialer: dial})
	}
}

// countingConn counts what is written to it with a text in it.
type countingConn struct {
	net.Conn
	text  string
	count *atomic.Int32
}

func (c countingConn) Write(b []byte) (int, error) {
	if strings.Contains(string(b), c.text) {
		c.count.Add(1)
	}
	return c.Conn.Write(b)
}

// A LOCKALL is given its locks by an answer that comes late, to a question that has been given up. It
// has them at once, and not only when its time has expired.
func TestLockAllIsGivenItsLocksLate(t *testing.T) {
	l, end := silentLocks(Config{MaxTimeout: time.Hour})
	defer end()
	s := &slowSession{}
	rs := lockRequests{{Key: "a", Connection: "c"}, {Key: "b", Connection: "c"}}
	g := l.queues.JoinAll(rs, names.Identity{}, 0, time.Now())
	by := &allLocks{waits: l.waits, s: s.session(), g: g, rs: rs}
	woken := 0
	turn := l.beginTurn(by.s, &g.Wait, by, 0, time.Hour, func() { woken++ }, nil)
	g.SettleLate(script.Attempt{Token: 200}, nil, false)
	reply, progress := turn.Go(t.Context(), true)
	if woken == 0 || progress != chain.Ended || reply.Int != 200 {
		t.Errorf("it is woken %d times, and told %+v", woken, reply)
	}
}
