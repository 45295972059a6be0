package lockcmd

import (
	"context"
	"errors"
	"net"
	"runtime"
	"runtime/debug"
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

// Get implements upstream: there is no value.
func (s *slowSession) Get(string) resp.Value { return resp.Value{Type: '_'} }

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
		for name, step := range map[string]func(s *slowSession, l *Locks, w *queue.Waiter) error{
			"poll": (*slowSession).poll, "check": (*slowSession).check,
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
			if err := step(s, l, w); err != nil || !w.State().Has || w.Token != want {
				t.Errorf("%s: %s: error %v, has it: %t, token %d, want %d",
					c.what, name, err, w.State().Has, w.Token, want)
			}
			w.End(nil)
		}
		l.Close()
	}
}

// The first waiter polls though its owner seems to have the lock, since it may be told so all the
// time.
func TestFirstWhoseOwnerSeemsToHaveTheLockPolls(t *testing.T) {
	l := newTestLocks()
	defer l.Close()
	r := script.Request{Key: "job", Owner: "me", Connection: "c", Number: "1"}
	w, _ := l.queues.Join(r, names.Identity{}, 0, time.Now())
	turn, by := (&slowSession{}).turnOf(l, w)
	w.OwnerMayHold()
	by.look(turn, false)
	if !w.Polled || w.State().Checks {
		t.Errorf("it has polled: %t; it is to check: %t", w.Polled, w.State().Checks)
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
		if err := s.pollOrPause(l, w); err == nil || asked == 0 {
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
	if err := s.check(l, w); err != nil || w.Token != 200 || !w.TakenOver || !w.Renewed {
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
	ctx context.Context, l *Locks, spec *syntax.Spec, on upstream, args [][]byte,
) Reply {
	c := clientOf(&held.Holder{LockLost: func(string, int64) {}})
	return run(ctx, c, on, Reply{}, l.Begin(spec, c, args))
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
		err := s.poll(l, w)
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
		c := clientOf(&s.holder)
		first, step := l.waitStep(c, request("waiter"), 0)
		reply := run(t.Context(), c, s, first, step)
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
	err := s.pollOrPause(l, w)
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
				c := clientOf(&s.holder)
				reply, step := l.waitStep(c, r, 0)
				replied <- run(ctx, c, s, reply, step)
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

// A LOCKALL is given its locks by an answer that comes late, to a question that has been given up.
// It has them at once, and not only when its time has expired.
func TestLockAllIsGivenItsLocksLate(t *testing.T) {
	l, end := silentLocks(Config{MaxTimeout: time.Hour})
	defer end()
	s := &slowSession{}
	rs := lockRequests{{Key: "a", Connection: "c"}, {Key: "b", Connection: "c"}}
	g := l.queues.JoinAll(rs, names.Identity{}, 0, time.Now())
	c := clientOf(&s.holder)
	turn := l.newTurn(c, g, 0)
	turn.by = &allLocks{waits: l.waits}
	_, step := turn.begin(time.Hour, nil)
	g.Lead.SettleLate(script.Attempt{Token: 200}, nil, nil, false)
	woken := len(c.Waker.(waker))
	if reply := run(t.Context(), c, s, Reply{}, step); woken == 0 || reply.Int != 200 {
		t.Errorf("it is woken %d times, and told %+v", woken, reply)
	}
}

// A release names a waiter whose first poll is under way. The poll's answer comes before the
// release's. If the poll has found the lock that the release has given, the waiter has its lock as
// soon as the release is answered. If the poll has taken the lock, it does not wait for that: its
// lease runs.
func TestHandedOverDuringTheFirstPoll(t *testing.T) {
	const later = 10 * time.Millisecond
	for _, poll := range []struct {
		answer []int64
		given  int64 // by the release
		after  time.Duration
	}{{[]int64{200, 0, 0}, 200, later}, {[]int64{200, 0}, 0, 0}} {
		synctest.Test(t, func(t *testing.T) {
			l, end := silentLocks(Config{MaxTimeout: time.Hour})
			defer end()
			r := script.Request{Key: "job", Timeout: time.Hour, Connection: "c", Number: "1"}
			s := &slowSession{meanwhile: func() []int64 {
				offer := l.queues.Of(names.Lock{Key: r.Key}).Offer(names.Identity{}, true, time.Now())
				time.AfterFunc(later, func() {
					offer.End(queue.Released{Done: poll.given != 0, Token: poll.given, Given: 1}, time.Now())
				})
				return poll.answer
			}}
			c, began := clientOf(&s.holder), time.Now()
			reply, step := l.waitStep(c, r, 0)
			reply = run(t.Context(), c, s, reply, step)
			if took := time.Since(began); reply.Int != 200 || took != poll.after {
				t.Errorf("%v: after %v the client is told %+v", poll.answer, took, reply)
			}
			time.Sleep(later)
		})
	}
}

// refusingSession refuses all scripts and reads, as a server that is loading, after a round trip.
type refusingSession struct {
	slowSession
	asked int
}

var loading = resp.Value{Type: '-', Text: []byte("LOADING Redis is loading the dataset in memory")}

func (s *refusingSession) Eval(*script.Call) (script.Answer, error) {
	return script.Answer{Value: s.Get("")}, nil
}

func (s *refusingSession) Get(string) resp.Value {
	time.Sleep(time.Millisecond)
	s.asked++
	return loading
}

// While all that a waiter asks is refused for the moment, it asks some 20 times a second, whatever
// tells it meanwhile that a lock may be free. While no lock is given out at all it asks for
// nothing.
func TestRefusedWaitersPause(t *testing.T) {
	request := func(key string) script.Request {
		return script.Request{Key: key, Connection: "c", Number: "1"}
	}
	once := request("a")
	once.Once, once.Value = true, "page"
	for what, wait := range map[string]func(l *Locks, c Client) (Reply, *Step){
		"LOCK": func(l *Locks, c Client) (Reply, *Step) { return l.waitStep(c, request("a"), 0) },
		"ONCE": func(l *Locks, c Client) (Reply, *Step) { return l.waitStep(c, once, 0) },
		"LOCKALL": func(l *Locks, c Client) (Reply, *Step) {
			return l.waitAll(c, lockRequests{request("a"), request("b")}, 0)
		},
	} {
		for _, held := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				l, end := silentLocks(Config{MaxTimeout: time.Hour, Moves: true,
					Durability: Durability{FailoverHold: time.Hour}})
				defer end()
				most := 40
				if held {
					most = 0
					l.FailedOver()
				}
				defer debug.SetMaxStack(debug.SetMaxStack(16 << 20))
				s := &refusingSession{}
				ctx, hangUp := context.WithCancelCause(t.Context())
				time.AfterFunc(100*time.Millisecond, func() {
					l.queues.Of(names.Lock{Key: "a"}).MayBeFree()
				})
				time.AfterFunc(time.Second, func() { hangUp(failure.ErrGone) })
				c := clientOf(&s.holder)
				reply, step := wait(l, c)
				if reply = run(ctx, c, s, reply, step); reply.Err == nil || s.asked > most {
					t.Errorf("%s, held off %t: asked %d times, and told %+v", what, held, s.asked, reply)
				}
			})
		}
	}
}

// mutedSession answers no script, within a second.
type mutedSession struct{ slowSession }

func (s *mutedSession) Eval(*script.Call) (a script.Answer, err error) {
	time.Sleep(time.Second)
	return a, failure.LateError{}
}

// A waiter waits no longer than a minute for an upstream that is silent, but for as long as it
// wants where another server can take its place.
func TestHowLongASilentUpstreamIsWaitedFor(t *testing.T) {
	for _, moves := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l, end := silentLocks(Config{MaxTimeout: time.Hour, Moves: moves})
			defer func() { end(); time.Sleep(time.Minute) }()
			s := &mutedSession{}
			ctx, hangUp := context.WithCancelCause(t.Context())
			time.AfterFunc(10*time.Minute, func() { hangUp(failure.ErrGone) })
			c, began := clientOf(&s.holder), time.Now()
			reply, step := l.waitStep(c, script.Request{Key: "a", Connection: "c", Number: "1"}, 0)
			reply = run(ctx, c, s, reply, step)
			if took := time.Since(began); reply.Err == nil || took > 10*time.Minute+time.Minute ||
				moves != (took >= 10*time.Minute) || !moves && took > 70*time.Second {
				t.Errorf("another can take its place %v: %v after %v", moves, reply.Err, took)
			}
		})
	}
}

// heldSession says that the lock is held, and notes how the polls say that the proxy waits.
type heldSession struct {
	slowSession
	tracks int // polls that say that its key is tracked
	polls  int
}

func (s *heldSession) Eval(c *script.Call) (a script.Answer, err error) {
	s.polls++
	for _, word := range strings.Fields(c.Args[0]) {
		if how := strings.TrimLeft(word, "fpsla"); how == "t0" {
			s.tracks++
		}
	}
	a.Type = '*'
	for _, n := range []int64{0, 0, 60_000, 0, 0} {
		a.Elems = append(a.Elems, resp.Value{Type: ':', Int: n})
	}
	return a, nil
}

// A proxy that hears of releases says that it follows a quiet lock only if its key is tracked: it
// would be believed to be still there for several seconds longer.
func TestPollsOfALockThatIsNotTracked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, end := silentLocks(Config{MaxTimeout: time.Hour})
		defer func() { end(); time.Sleep(time.Minute) }()
		l.queues.Hears(func(string) bool { return true })
		s := &heldSession{}
		ctx, hangUp := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Second, func() { hangUp(failure.ErrGone) })
		c := clientOf(&s.holder)
		reply, step := l.waitStep(c, script.Request{Key: "a", Connection: "c", Number: "1"}, 0)
		if run(ctx, c, s, reply, step); s.polls < 20 || s.tracks > 0 {
			t.Errorf("%d of %d polls say that the lock is followed", s.tracks, s.polls)
		}
	})
}
