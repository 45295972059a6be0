//go:build !race

package hints

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/internal/test/wire"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/search"
)

// upstream is the other end of the connections of a Listener, which a test plays.
type upstream struct {
	*Listener
	t     *testing.T
	calls chan net.Conn
	net.Conn
	in *bufio.Reader
}

// inBubble runs a test of a Listener in virtual time. In a cluster it does not hear who waits.
func inBubble(t *testing.T, cluster bool, test func(u *upstream)) {
	deadlocks := search.Refuse
	if cluster {
		deadlocks = search.Off
	}
	inBubbleWith(t, cluster, deadlocks, test)
}

func inBubbleWith(t *testing.T, cluster bool, deadlocks string, test func(u *upstream)) {
	synctest.Test(t, func(t *testing.T) {
		u := &upstream{t: t, calls: make(chan net.Conn, 10)}
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1",
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe()
				u.calls <- there
				return here, nil
			}})
		jobs := &background.Jobs{Timers: background.NewTimers(), Log: hclog.NewNullLogger(),
			Scripts: script.NewMaker(script.Config{Proxy: "p", Cluster: cluster}),
			Clients: background.NewClients(func(names.Identity) *redis.Client {
				return client
			}, cluster)}
		u.Listener = newListenerWith(jobs, deadlocks)
		test(u)
		jobs.Timers.Close()
		client.Close()
	})
}

// connected takes the connection that was opened, which asks for these keys first.
func (u *upstream) connected(keys ...string) {
	u.t.Helper()
	u.opened()
	u.hears("CLIENT TRACKING ON")
	var want []string
	for _, key := range keys {
		want = append(want, "EXISTS "+key)
	}
	u.hearsAll(want...)
}

// opened takes the connection that was opened.
func (u *upstream) opened() {
	u.t.Helper()
	u.Conn = <-u.calls
	u.in = bufio.NewReader(u.Conn)
	u.hears("HELLO 3")
}

func (u *upstream) next() string {
	u.t.Helper()
	raw, _, err := resp.ReadReply(u.in, 1<<10)
	if err != nil {
		u.t.Fatal(err)
	}
	v, _ := resp.ParseValue(raw)
	var words []string
	for _, e := range v.Elems {
		words = append(words, string(e.Text))
	}
	return strings.Join(words, " ")
}

func (u *upstream) hears(requests ...string) {
	u.t.Helper()
	for _, want := range requests {
		if got := u.next(); got != want {
			u.t.Fatalf("asked %q, not %q", got, want)
		}
	}
}

// hearsAll is hears for requests in any order, which it returns as they came.
func (u *upstream) hearsAll(requests ...string) (asked []string) {
	u.t.Helper()
	for range requests {
		asked = append(asked, u.next())
	}
	for _, want := range requests {
		if !slices.Contains(asked, want) {
			u.t.Fatalf("asked %q, not for %q", asked, want)
		}
	}
	return asked
}

// says sends lines byte by byte, and waits until they have been read.
func (u *upstream) says(lines ...string) {
	u.t.Helper()
	for _, b := range []byte(strings.Join(lines, "\r\n") + "\r\n") {
		if _, err := u.Write([]byte{b}); err != nil {
			u.t.Fatal(err)
		}
	}
	synctest.Wait()
}

// waits has a client wait for a lock, and the Listener listen for it.
func (u *upstream) waits(key string) *queue.Waiter {
	u.t.Helper()
	w, _ := u.queues.Join(script.Request{Key: key, Connection: "c", Number: key},
		names.Identity{}, 0, time.Now())
	u.Listen(names.Identity{}, key)
	return w
}

// serves answers what is asked within d, or until the other end closes the connection, and returns
// it.
func (u *upstream) serves(d time.Duration, answer func(request string) string) (asked []string) {
	u.t.Helper()
	u.SetReadDeadline(time.Now().Add(d))
	defer u.SetReadDeadline(time.Time{})
	for {
		_, err := u.in.Peek(1)
		if err == nil {
			asked = append(asked, u.next())
			_, err = io.WriteString(u, answer(asked[len(asked)-1])+"\r\n")
			synctest.Wait()
		}
		switch {
		case err == io.EOF, err == io.ErrClosedPipe, errors.Is(err, os.ErrDeadlineExceeded):
			return asked
		case err != nil:
			u.t.Fatal(err)
		}
	}
}

// agrees is the answer of an upstream where the user may do all.
func agrees(request string) string {
	words := strings.Fields(request)
	switch {
	case words[0] == "HELLO":
		return "%0"
	case words[0] == "PING":
		return "+PONG"
	case words[0] == "EXISTS":
		return ":1"
	case strings.HasSuffix(words[0], "SUBSCRIBE"):
		return ">3\r\n" + wire.Bulk(strings.ToLower(words[0])) + wire.Bulk(words[1]) + ":1"
	}
	return "+OK"
}

// count is how many requests begin so.
func count(asked []string, begin string) (n int) {
	for _, one := range asked {
		if strings.HasPrefix(one, begin) {
			n++
		}
	}
	return n
}

// pings takes signs of life for d, each of which it answers.
func (u *upstream) pings(d time.Duration, answer string) {
	u.t.Helper()
	for began := time.Now(); time.Since(began) < d; {
		u.hears("PING")
		u.says(answer)
	}
}

func (u *upstream) follows(key string, now, soon bool) {
	u.t.Helper()
	if n, s := u.Follows(names.Identity{}, key); n != now || s != soon {
		u.t.Errorf("it follows %s: %v, soon %v", key, n, s)
	}
}

// ended waits until the connection has been closed from the other end.
func (u *upstream) ended() {
	u.t.Helper()
	if _, err := io.Copy(io.Discard, u.in); err != nil {
		u.t.Fatal(err)
	}
	synctest.Wait()
}

func (u *upstream) want(key string) { u.Want(names.Identity{}, key) }

// A key is followed from the answer about it on, behind those to both setup commands, until a push
// names it. Pushes come anywhere, and answer nothing.
func TestKeysAreTracked(t *testing.T) {
	const ofA = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na"
	inBubble(t, false, func(u *upstream) {
		u.want("a")
		u.want("b")
		u.connected("a", "b")
		u.says(ofA)
		u.says("%1", "+proto", ":3")
		u.follows("a", false, false)
		u.says(ofA)
		u.follows("a", false, false)
		u.says("+OK")
		u.follows("a", false, true)
		u.says(":1", ":0")
		u.follows("a", true, true)
		u.follows("b", true, true)
		u.says(ofA)
		u.follows("a", false, false)
		u.says(">2", "$10", "invalidate", "*2", "$1", "c", "$1", "b")
		u.follows("b", false, false)
		u.want("a")
		u.want("b")
		u.hears("EXISTS a", "EXISTS b")
		u.says(ofA, ":0")
		u.follows("a", true, true)
		u.says(":0")
		u.says(">2", "$10", "invalidate", "_") // FLUSHALL
		u.follows("a", false, false)
		u.follows("b", false, false)
	})
}

// A connection that is lost is opened again, and asks for its keys again. One that has no more keys
// is closed.
func TestConnectionIsOpenedAgain(t *testing.T) {
	inBubble(t, false, func(u *upstream) {
		u.want("a")
		for range 3 {
			u.connected("a")
			u.says("%0", "+OK", ":1")
			u.follows("a", true, true)
			u.Close()
			synctest.Wait()
			u.follows("a", false, false)
		}
		u.connected("a")
		u.says("%0", "+OK", ":1")
		began := time.Now()
		u.pings(connIdle-beatEvery, "+PONG") // the key concerns nobody
		u.ended()
		synctest.Wait()
		if waited := time.Since(began); len(u.conns) > 0 || waited < connIdle ||
			waited > connIdle+2*beatEvery {
			t.Errorf("it was kept for %v, and there are %d", waited, len(u.conns))
		}
	})
}

// A connection whose last key has changed is kept for a while, however long it has had the key.
func TestConnectionOutlastsItsKey(t *testing.T) {
	inBubble(t, false, func(u *upstream) {
		w, _ := u.queues.Join(script.Request{Key: "a", Connection: "c", Number: "1"},
			names.Identity{}, 0, time.Now())
		u.want("a")
		u.connected("a")
		u.says("%0", "+OK", ":1")
		u.pings(3*connIdle-2*beatEvery, "+PONG")
		w.End(nil)
		u.says(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na")
		u.follows("a", false, false)
		u.hears("PING")
		u.Conn.Close()
	})
}

// A connection on which there is no answer, or none that can be read, is opened again. A user that
// may not track is not asked to again for a while.
func TestConnectionWithoutAnswers(t *testing.T) {
	inBubble(t, false, func(u *upstream) {
		u.want("a")
		began := time.Now()
		u.connected("a")
		u.ended() // there is no answer to HELLO
		if waited := time.Since(began); waited <= connIdle || waited > connIdle+beatEvery {
			t.Errorf("it has waited for %v", waited)
		}
		u.connected("a")
		u.says("%0")
		u.ended() // there is none to CLIENT TRACKING
		u.connected("a")
		u.says("%0", "+OK")
		u.ended() // there is none to EXISTS
		u.connected("a")
		u.says("%0", "+OK", ":1", "?")
		u.ended()
		u.connected("a")
		u.says("%0", "-ERR unknown command 'CLIENT'", ":1")
		u.follows("a", false, false)
		u.ended() // nobody needs it
		time.Sleep(trackingRetry / 2)
		u.want("a")
		synctest.Wait()
		if len(u.calls) > 0 {
			t.Error("a user that was refused is asked again")
		}
		time.Sleep(trackingRetry)
		u.want("a")
		u.connected("a")
		u.ended()
	})
}

// A connection that is lost again and again is opened again at once, as long as each was of use.
// Only behind those that end as soon as they are open is there a pause, of a second at most.
func TestConnectionsThatAreLost(t *testing.T) {
	inBubble(t, false, func(u *upstream) {
		lost := func(after time.Duration) (pause time.Duration) {
			u.connected("a")
			time.Sleep(after)
			u.Conn.Close()
			began := time.Now()
			call := <-u.calls
			u.calls <- call
			return time.Since(began)
		}
		u.want("a")
		for range 20 {
			if pause := lost(600 * time.Millisecond); pause > 0 {
				t.Errorf("behind a connection that was of use is a pause of %v", pause)
			}
		}
		var pauses []time.Duration
		for range 8 {
			pauses = append(pauses, lost(0))
		}
		if pauses[0] > minRetry || !slices.IsSorted(pauses) || pauses[7] != maxRetry {
			t.Errorf("the pauses behind others are %v", pauses)
		}
		if pause := lost(maxRetry); pause > 0 {
			t.Errorf("behind them is a pause of %v, though one was of use", pause)
		}
		u.connected("a")
		u.Conn.Close()
	})
}

// A key that is not tracked any more has changed: the first waiter polls.
func TestAKeyThatIsForgottenChanges(t *testing.T) {
	inBubble(t, false, func(u *upstream) {
		w := u.waits("b")
		u.want("a")
		u.opened()
		u.says("%0")
		u.serves(0, agrees)
		w.PollBegan(time.Now())
		w.BeginPoll(time.Now())
		w.PollEnded()
		w.TakeWoken()
		u.says(">2", "$10", "invalidate", "*1", "$1", "b")
		if !w.State().PollNow {
			t.Error("it does not poll")
		}
		w.End(nil)
		u.Conn.Close()
	})
}

// A connection to which nothing can be written is opened again: soon, and not when an answer is
// missing.
func TestConnectionThatTakesNothing(t *testing.T) {
	inBubble(t, false, func(u *upstream) {
		u.want("a")
		began := time.Now()
		<-u.calls
		u.connected("a")
		if took := time.Since(began); took > u.Clients.Patience() {
			t.Errorf("it was opened again after %v", took)
		}
		u.Conn.Close()
	})
}

// An error that passes ends the connection, and the next one asks again. A sign of life that is
// refused is one.
func TestErrorsThatPass(t *testing.T) {
	inBubble(t, false, func(u *upstream) {
		u.queues.Join(script.Request{Key: "a", Connection: "c", Number: "1"}, names.Identity{}, 0,
			time.Now())
		u.want("a")
		for _, answers := range [][]string{{"-LOADING Redis is loading"}, {"%0", "-BUSY a script"},
			{"%0", "+OK", "-CLUSTERDOWN no"}} {
			u.connected("a")
			u.says(answers...)
			u.ended()
		}
		u.connected("a")
		u.says("%0", "+OK", ":1")
		u.pings(3*beatEvery, "-NOPERM no permissions to run the 'ping' command")
		u.follows("a", true, true)
		u.Conn.Close()
	})
}

// A user that was refused to track is asked again later, on the same connection.
func TestTrackingIsAllowedLater(t *testing.T) {
	inBubble(t, false, func(u *upstream) {
		u.waits("a")
		u.want("a")
		u.opened()
		u.says("%0")
		asked := u.serves(trackingRetry, func(request string) string {
			if request == "CLIENT TRACKING ON" {
				return "-NOPERM no"
			}
			return agrees(request)
		})
		if n := count(asked, "CLIENT"); n != 1 || !u.Listener.heard[0].Load() {
			t.Errorf("it has asked to track %d times, and subscribed: %q", n, asked)
		}
		u.want("a")
		u.serves(beatEvery, agrees)
		u.follows("a", true, true)
		u.Conn.Close()
	})
}

// An upstream without HELLO, which is Redis 5, tells of releases. It would not tell of keys, though
// it may know CLIENT TRACKING.
func TestUpstreamWithoutHello(t *testing.T) {
	for _, refusal := range []string{"-ERR unknown command 'HELLO'", "-NOPROTO no"} {
		inBubble(t, false, func(u *upstream) { withoutHello(u, refusal) })
	}
}

func withoutHello(u *upstream, refusal string) {
	u.waits("a")
	u.want("a")
	u.opened()
	u.says(refusal)
	asked := u.serves(trackingRetry+beatEvery, func(request string) string {
		if request == "PING" {
			return "*2\r\n$4\r\npong\r\n$0\r\n"
		}
		return strings.Replace(agrees(request), ">", "*", 1)
	})
	u.want("a")
	u.says("*3", "$7", "message", "$16", "lockproxy:wake:p", "$1", "x")
	asked = append(asked, u.serves(3*beatEvery, agrees)...)
	if n := count(asked, "EXISTS"); n > 1 || !u.Listener.heard[0].Load() {
		u.t.Errorf("it has asked for %d keys, and subscribed: %q", n, asked)
	}
	u.follows("a", false, false)
	u.Conn.Close()
}
