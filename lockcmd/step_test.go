package lockcmd

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// silentLocks returns Locks whose own connections to the upstream are not opened before end.
func silentLocks(cfg Config) (l *Locks, end func()) {
	ended := make(chan struct{})
	connect := func(names.Identity) *redis.Client {
		return redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", // no name to look up
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				<-ended
				return nil, net.ErrClosed
			},
		})
	}
	l = New(cfg, "proxy", connect, hclog.NewNullLogger())
	return l, func() { close(ended); l.Close() }
}

func numbers(list ...int64) (a script.Answer) {
	a.Type = '*'
	for _, n := range list {
		a.Elems = append(a.Elems, resp.Value{Type: ':', Int: n})
	}
	return a
}

// wantOutcome wants an error that says that a lock was taken, and what has become of it.
func wantOutcome(t *testing.T, err error, want string) {
	t.Helper()
	if !failure.IsUnconfirmed(err) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A release has given the lock to a waiter that has left, or that must not keep it because another
// server has replaced the upstream. Neither the release nor the LOCK that meets the same waits for
// the upstream: an event loop finishes them.
func TestStepsDoNotWait(t *testing.T) {
	const token = 1790000000000001
	for what, finish := range map[string]func(l *Locks, c Client, w *queue.Waiter){
		"UNLOCK, the waiter has left": func(l *Locks, c Client, w *queue.Waiter) {
			step := l.beginUnlock(c, [][]byte{[]byte("job"), []byte("7")})
			w.GiveUp()
			step.Finish(numbers(1, token, 0), nil)
		},
		"UNLOCK, its outcome is not known": func(l *Locks, c Client, w *queue.Waiter) {
			step := l.beginUnlock(c, [][]byte{[]byte("job"), []byte("7")})
			w.GiveUp()
			step.Finish(script.Answer{}, context.DeadlineExceeded)
		},
		"UNLOCK, replaced": func(l *Locks, c Client, w *queue.Waiter) {
			step := l.beginUnlock(c, [][]byte{[]byte("job"), []byte("7")})
			l.FailedOver()
			_, next := step.Finish(numbers(1, token, 0), nil)
			if w.State().Err == nil || next == nil || next.Call().Script != script.UnlockScript {
				t.Error("the waiter may keep the lock, or it is not released")
				return
			}
			reply, next := next.Finish(script.Answer{}, context.DeadlineExceeded)
			if next != nil || reply.Int != 1 {
				t.Errorf("the reply is %+v", reply)
			}
			wantOutcome(t, w.State().Err, script.NotUndone)
		},
		"LOCK, replaced": func(l *Locks, c Client, w *queue.Waiter) {
			step := l.beginLock(c, [][]byte{[]byte("other"), []byte("30")})
			l.FailedOver()
			_, next := step.Finish(numbers(token, 0), nil)
			if next == nil || next.Call().Script != script.UnlockScript ||
				next.Call().Keys[0] != "other" {
				t.Error("the lock is not released")
				return
			}
			reply, next := next.Finish(numbers(1, 0, 0), nil)
			if next != nil {
				t.Errorf("the reply is %+v", reply)
			}
			wantOutcome(t, reply.Err, script.NotTaken)
		},
		"LOCK, replaced, its release is lost": func(l *Locks, c Client, w *queue.Waiter) {
			step := l.beginLock(c, [][]byte{[]byte("other"), []byte("30")})
			l.FailedOver()
			_, next := step.Finish(numbers(token, 0), nil)
			reply, _ := next.Finish(script.Answer{}, context.DeadlineExceeded)
			wantOutcome(t, reply.Err, script.NotUndone)
		},
		"LOCK, without replicas, its release is lost": func(l *Locks, c Client, w *queue.Waiter) {
			step := l.beginLock(c, [][]byte{[]byte("other"), []byte("30")})
			answer := numbers(token, 0)
			answer.Confirmed = resp.Value{Type: ':', Int: 0}
			_, next := step.Finish(answer, nil)
			reply, _ := next.Finish(script.Answer{}, context.DeadlineExceeded)
			wantOutcome(t, reply.Err, script.NotUndone)
		},
		"LOCK, its outcome is not known": func(l *Locks, c Client, w *queue.Waiter) {
			step := l.beginLock(c, [][]byte{[]byte("other"), []byte("30")})
			step.Finish(script.Answer{}, context.DeadlineExceeded)
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, end := silentLocks(Config{MaxTimeout: time.Hour,
					Durability: Durability{FailoverHold: time.Hour, MinReplicas: 1}})
				c, began := Client{Holder: &held.Holder{}}, time.Now()
				w, _ := l.queues.Join(script.Request{Key: "job", Timeout: time.Minute, Connection: "c",
					Number: "1", Client: "-"}, names.Identity{}, 0, time.Now())
				finish(l, c, w)
				if took := time.Since(began); took != 0 {
					t.Errorf("it waits for %v", took)
				}
				end()
			})
		})
	}
}

// What the answer to a client without rights has in common for all keys is known from the first: it
// is asked about alone, since Redis lets a client that has not logged in have few answers at once.
func TestTheFirstKeyIsAskedAboutAlone(t *testing.T) {
	var asked []int
	keys := []string{"a", "b", "c"}
	may := map[string]bool{}
	done := func() (Reply, *Step) { return Reply{}, nil }
	for _, step := readable(keys, may, done); step != nil; {
		asked = append(asked, len(step.Commands().List))
		_, step = step.Finish(script.Answer{Raw: slices.Repeat([][]byte{[]byte(":1\r\n")},
			len(step.Commands().List))}, nil)
	}
	if !slices.Equal(asked, []int{1, 2}) || len(may) != len(keys) {
		t.Errorf("asked about %v keys together, may read %v", asked, may)
	}
	_, step := readable(keys, may, done)
	reply, next := step.Finish(script.Answer{
		Raw: [][]byte{[]byte("-NOAUTH Authentication required.\r\n")}}, nil)
	if reply.Err == nil || next != nil {
		t.Errorf("a client that has not logged in: %+v, %v", reply, next)
	}
}

// Which keys a user may read is asked in steps that can be left out if the client has gone: one
// key, so that a client that has not logged in is told so, then many together.
func TestReadableKeysAreAskedInFurtherSteps(t *testing.T) {
	keys, may := make([]string, 2*visibleBatch+1), map[string]bool{}
	for i := range keys {
		keys[i] = strconv.Itoa(i)
	}
	_, step := readable(keys, may, func() (Reply, *Step) { return Reply{}, nil })
	var sizes []int
	for step != nil {
		if !step.Commands().Further {
			t.Errorf("step %d cannot be left out", len(sizes))
		}
		sizes = append(sizes, len(step.Commands().List))
		asked := len(step.Commands().List)
		answer := script.Answer{Raw: slices.Repeat([][]byte{[]byte(":-1\r\n")}, asked)}
		answer.Raw[0] = []byte("-NOPERM no\r\n")
		_, step = step.Finish(answer, nil)
	}
	if !slices.Equal(sizes, []int{1, visibleBatch, visibleBatch}) || len(may) != len(keys) ||
		may["0"] || !may["2"] {
		t.Errorf("asked about %d, learned of %d keys", sizes, len(may))
	}
}

// keptSession notes what a command that waits asks for.
type keptSession struct {
	fixedSession
	asked *strings.Builder
}

func (s *keptSession) Eval(c *script.Call) (script.Answer, error) {
	fmt.Fprintln(s.asked, c.AppendWords(nil, false)[2:])
	return s.fixedSession.Eval(c)
}

func (s *keptSession) Get(key string) resp.Value {
	fmt.Fprintln(s.asked, key)
	return s.fixedSession.Get(key)
}

// A session that is parked reads on into the buffer in which the arguments of its command stand. So
// no command keeps them: all that it asks for later is as it was sent.
func TestNoCommandKeepsItsArguments(t *testing.T) {
	l, end := silentLocks(Config{MaxTimeout: time.Hour,
		CanFence: func([][]byte) bool { return true }})
	defer end()
	for _, text := range []string{
		"LOCK aaa 60 OWNER bbb SESSION MAX 90", "LOCK aaa 60 OWNER bbb SHARED WAIT 0.01",
		"LOCKALL 60 2 aaa bbb OWNER ccc", "LOCKALL 60 2 aaa bbb OWNER ccc WAIT 0.01",
		"ONCE aaa 60 OWNER bbb", "ONCE aaa 60 OWNER bbb WAIT 0.01", "DONE aaa 123 bbb EX 10", "DONE aaa 123",
		"UNLOCK aaa", "UNLOCK aaa 123", "UNLOCK aaa FORCE", "UNLOCKALL 123 2 aaa bbb",
		"RELOCK aaa 123 60", "FENCE aaa 123 SET bbb ccc", "LOCKINFO aaa", "LOCKINFO aaa HOLDERS",
		"LOCKINFO aaa WAITERS", "LOCKSCAN 0 MATCH aaa COUNT 10", "LOCKTOP BY wait", "LOCKLOG aaa COUNT 10",
	} {
		for _, raw := range []string{"+OK\r\n", "$-1\r\n", "$13\r\n1795830572734\r\n", ":1\r\n",
			"*2\r\n$1\r\n0\r\n*0\r\n", "-NOSCRIPT none\r\n"} {
			for _, v := range []resp.Value{numbers(0, 0, 1000, 1).Value, numbers(1, 0, 0).Value} {
				asked := &strings.Builder{}
				on := &keptSession{fixedSession: fixedSession{answer: v}, asked: asked}
				l.follow(t.Context(), on, text, raw)
				if said := asked.String(); strings.Contains(said, "\x00") ||
					strings.Contains(said, `\x00`) {
					t.Errorf("%s: it asks for %q", text, asked)
				}
			}
		}
	}
}

// follow runs a command whose arguments are overwritten once it has begun. The commands that it asks
// for are answered with raw.
func (l *Locks) follow(ctx context.Context, on *keptSession, text, raw string) {
	var args [][]byte
	for word := range strings.FieldsSeq(text) {
		args = append(args, []byte(word))
	}
	spec := &syntax.Specs[slices.IndexFunc(syntax.Specs, func(s syntax.Spec) bool {
		return strings.EqualFold(s.Name, string(args[0]))
	})]
	c := clientOf(&held.Holder{LockLost: func(string, int64) {}})
	step := l.Begin(spec, c, args)
	for _, arg := range args {
		copy(arg, strings.Repeat("\x00", len(arg)))
	}
	for range 20 { // FENCE tries again and again
		if step == nil {
			return
		}
		if step.Asks == Asks(Turn{}) {
			run(ctx, c, on, Reply{}, step)
			return
		}
		var a script.Answer
		if call := step.Call(); call != nil {
			a, _ = on.Eval(call)
		}
		for _, command := range step.Commands().List {
			fmt.Fprintf(on.asked, "%q\n", command)
			a.Raw = append(a.Raw, []byte(raw))
		}
		_, step = step.Finish(a, nil)
	}
}
