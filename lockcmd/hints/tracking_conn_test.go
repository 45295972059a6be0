//go:build !race

package hints

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// trackedUpstream is the other end of the connections of a Tracking, which a test plays.
type trackedUpstream struct {
	*Tracking
	t     *testing.T
	calls chan net.Conn
	net.Conn
	in *bufio.Reader
}

// inBubble runs a test of a Tracking in virtual time.
func inBubble(t *testing.T, test func(u *trackedUpstream)) {
	synctest.Test(t, func(t *testing.T) {
		u := &trackedUpstream{t: t, calls: make(chan net.Conn, 10)}
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1",
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe()
				u.calls <- there
				return here, nil
			}})
		jobs := &background.Jobs{Timers: background.NewTimers(), Log: hclog.NewNullLogger(),
			Clients: background.NewClients(func(names.Identity) *redis.Client { return client }, false)}
		registry := held.NewRegistry(func(*held.Lock) {})
		sessions := held.NewSessions(jobs, registry, &names.Filter{}, nil)
		u.Tracking = NewTracking(queue.New(&background.Ways{}), sessions)
		test(u)
		jobs.Timers.Close()
		client.Close()
	})
}

// connected takes the connection that was opened, which asks these keys first.
func (u *trackedUpstream) connected(keys ...string) {
	u.t.Helper()
	u.Conn = <-u.calls
	u.in = bufio.NewReader(u.Conn)
	u.hears("HELLO 3", "CLIENT TRACKING ON")
	asked := map[string]bool{}
	for range keys {
		asked[u.next()] = true
	}
	for _, key := range keys {
		if !asked["EXISTS "+key] {
			u.t.Fatalf("asked %v, not for %s", asked, key)
		}
	}
}

func (u *trackedUpstream) next() string {
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

func (u *trackedUpstream) hears(requests ...string) {
	u.t.Helper()
	for _, want := range requests {
		if got := u.next(); got != want {
			u.t.Fatalf("asked %q, not %q", got, want)
		}
	}
}

// says sends lines byte by byte, and waits until they have been read.
func (u *trackedUpstream) says(lines ...string) {
	u.t.Helper()
	for _, b := range []byte(strings.Join(lines, "\r\n") + "\r\n") {
		if _, err := u.Write([]byte{b}); err != nil {
			u.t.Fatal(err)
		}
	}
	synctest.Wait()
}

func (u *trackedUpstream) follows(key string, now, soon bool) {
	u.t.Helper()
	if n, s := u.Follows(names.Identity{}, key); n != now || s != soon {
		u.t.Errorf("it follows %s: %v, soon %v", key, n, s)
	}
}

// ended waits until the connection has been closed from the other end.
func (u *trackedUpstream) ended() {
	u.t.Helper()
	if _, err := io.Copy(io.Discard, u.in); err != nil {
		u.t.Fatal(err)
	}
	synctest.Wait()
}

func (u *trackedUpstream) want(key string) { u.Want(names.Identity{}, key) }

// A key is followed from the answer about it on, behind those to both setup commands, until a push
// names it. Pushes come anywhere, and answer nothing.
func TestTrackingConnection(t *testing.T) {
	const ofA = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na"
	inBubble(t, func(u *trackedUpstream) {
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
		u.says(":1")
		u.says(ofA, ":0")
		u.follows("a", false, false)
		u.follows("b", true, true)
		u.says(">2", "$10", "invalidate", "*2", "$1", "c", "$1", "b")
		u.follows("b", false, false)
		u.want("a")
		u.want("b")
		u.hears("EXISTS a", "EXISTS b")
		u.says(":0", ":0")
		u.follows("a", true, true)
		u.says(">2", "$10", "invalidate", "_") // FLUSHALL
		u.follows("a", false, false)
		u.follows("b", false, false)
	})
}

// A connection that is lost is opened again, and asks for its keys again. One that has no more keys
// is closed.
func TestTrackingConnectionIsOpenedAgain(t *testing.T) {
	inBubble(t, func(u *trackedUpstream) {
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
		for time.Since(began) < trackingIdle-trackingBeat { // the key concerns nobody
			u.hears("PING")
			u.says("+PONG")
		}
		u.ended()
		synctest.Wait()
		if waited := time.Since(began); len(u.conns) > 0 || waited < trackingIdle ||
			waited > trackingIdle+trackingBeat {
			t.Errorf("it was kept for %v, and there are %d", waited, len(u.conns))
		}
	})
}

// A connection whose last key has changed is kept for a while, however long it has had the key.
func TestTrackingConnectionOutlastsItsKey(t *testing.T) {
	inBubble(t, func(u *trackedUpstream) {
		w, _ := u.queues.Join(script.Request{Key: "a", Connection: "c", Number: "1"},
			names.Identity{}, 0, time.Now())
		u.want("a")
		u.connected("a")
		u.says("%0", "+OK", ":1")
		for began := time.Now(); time.Since(began) < 3*trackingIdle-2*trackingBeat; {
			u.hears("PING")
			u.says("+PONG")
		}
		w.End(nil)
		u.says(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na")
		u.follows("a", false, false)
		u.hears("PING")
		u.Conn.Close()
	})
}

// A connection on which there is no answer, or none that can be read, is opened again. A refused
// login is not asked again.
func TestTrackingConnectionWithoutAnswers(t *testing.T) {
	inBubble(t, func(u *trackedUpstream) {
		u.want("a")
		began := time.Now()
		u.connected("a")
		u.ended() // there is no answer to HELLO
		if waited := time.Since(began); waited <= trackingIdle || waited > trackingIdle+trackingBeat {
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
		u.says("%0", "-ERR unknown command 'CLIENT'")
		u.ended()
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
