package sharing_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// Many clients send all kinds of pipelines at once, and each knows the right replies.
func TestLaneTorture(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := sharing(t, server, 2)
	for db := range 3 {
		admin := proxytest.Dial(t, server.Addr())
		admin.Expect(fmt.Sprintf("SELECT %d", db), "+OK\r\n")
		admin.Expect(fmt.Sprintf("SET db %d", db), "+OK\r\n")
	}
	torture(t, p.Addr, 40, new(atomic.Int64), nil, false)
	testwait.Until(t, "no client is left", func() bool {
		st := p.Server.Stats()
		return st.Clients == 0 && st.Connections.Shared == 0 && st.Connections.Homes == 0
	})
}

// The same while the upstream closes connections at random: a reply can report the loss of its
// request, and never goes to another client. A request reported as not sent never ran.
func TestLaneTortureWithKills(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := sharing(t, server, 2)
	for db := range 3 {
		admin := proxytest.Dial(t, server.Addr())
		admin.Expect(fmt.Sprintf("SELECT %d", db), "+OK\r\n")
		admin.Expect(fmt.Sprintf("SET db %d", db), "+OK\r\n")
	}
	stop := make(chan struct{})
	var killing sync.WaitGroup
	killer := proxytest.Dial(t, server.Addr())
	const enough = 10
	var asked atomic.Int64
	var killed atomic.Int32
	killing.Go(func() { // ends with stop
		for awaitAsked(&asked, 100+rand.Int64N(200), stop) {
			if ids := laneIDs(killer, "resp="); len(ids) > 1 {
				killer.Do("CLIENT KILL ID " + ids[rand.IntN(len(ids)-1)] + " SKIPME yes")
				killed.Add(1)
			}
		}
	})
	torture(t, p.Addr, 40, &asked, func() bool { return killed.Load() >= enough }, true)
	close(stop)
	killing.Wait()
}

// awaitAsked returns once so many more requests have been asked; false once stop is closed.
func awaitAsked(asked *atomic.Int64, more int64, stop <-chan struct{}) (goOn bool) {
	enough := asked.Load() + more
	return testwait.Holds(func() bool { return isClosed(stop) || asked.Load() >= enough }) &&
		!isClosed(stop)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// tortureRequests is how many requests are enough. make long SUITE=torture asks many more.
func tortureRequests() int64 {
	if n, err := strconv.ParseInt(os.Getenv("LOCKPROXY_TEST_TORTURE"), 10, 64); err == nil {
		return n
	}
	return 3000
}

// torture runs clients until they have asked enough, and also is true, unless it is nil. With
// losses, their requests can be lost or their connections closed, and they continue with new
// connections.
func torture(t *testing.T, addr string, clients int, asked *atomic.Int64, also func() bool,
	losses bool) {
	var running sync.WaitGroup
	var lost atomic.Int64
	over := func() bool { return asked.Load() >= tortureRequests() && (also == nil || also()) }
	for i := range clients {
		running.Go(func() {
			for round := 0; !over() && !t.Failed(); round++ {
				v := &victim{t: t, id: i, life: round,
					rand: rand.New(rand.NewPCG(uint64(i), uint64(round))), losses: losses,
					asked: asked, lost: &lost}
				v.live(addr, over)
			}
		})
	}
	running.Wait()
	t.Logf("%d requests, %d lost", asked.Load(), lost.Load())
	if losses && lost.Load() == 0 {
		t.Error("nothing was lost")
	}
}

// victim is one client and what it knows.
type victim struct {
	t           *testing.T
	id, life    int
	rand        *rand.Rand
	losses      bool
	asked, lost *atomic.Int64

	db, proto int
	name      string
	serial    int
	value     map[int]string // of its key, by database
	raw       []byte
	want      []string // regular expressions
	sent      []string // the requests, for messages
}

func (v *victim) ask(want string, words ...string) {
	v.raw = wire.Append(v.raw, words...)
	if want != "" {
		v.want, v.sent = append(v.want, want), append(v.sent, fmt.Sprintf("%.100q", words))
	}
}

// exactly begins a reply that is not a regular expression.
const exactly = "\x00"

func (v *victim) null() string {
	if v.proto == 3 {
		return exactly + "_\r\n"
	}
	return exactly + "$-1\r\n"
}

func (v *victim) array(n int) string { return fmt.Sprintf(exactly+"*%d\r\n", n) }

// push is the first byte of a confirmation.
func (v *victim) push() string {
	if v.proto == 3 {
		return exactly + ">"
	}
	return exactly + "*"
}

func (v *victim) unique(what string) string {
	v.serial++
	return fmt.Sprintf("%s-%d-%d-%x", what, v.id, v.serial, v.rand.Uint64())
}

// key is used by this connection only: requests of an earlier
// one can still run after it was closed.
func (v *victim) key() string { return fmt.Sprintf("key:%d:%d", v.id, v.life) }

func (v *victim) known() string {
	switch value, ok := v.value[v.db]; {
	case !ok:
		return v.null()
	default:
		return exactly + wire.Bulk(value)
	}
}

const (
	okReply     = exactly + "+OK\r\n"
	queuedReply = exactly + "+QUEUED\r\n"
)

// step adds one action to the pipeline.
func (v *victim) step() {
	switch v.rand.IntN(27) {
	default:
		u := v.unique("echo")
		v.ask(exactly+wire.Bulk(u), "ECHO", u)
	case 1, 2, 3:
		v.ask(v.known(), "GET", v.key())
	case 4, 5:
		u := v.unique("value")
		if v.rand.IntN(40) == 0 {
			u += strings.Repeat("x", v.rand.IntN(300<<10))
		}
		v.ask(okReply, "SET", v.key(), u)
		v.value[v.db] = u
	case 6:
		u := v.unique("multi")
		v.ask(okReply, "MULTI")
		v.ask(queuedReply, "ECHO", u)
		v.ask(queuedReply, "GET", "db")
		v.ask(v.array(2)+wire.Bulk(u)+wire.Bulk(fmt.Sprint(v.db)),
			"EXEC")
	case 7:
		if v.rand.IntN(8) > 0 { // Redis takes its time to notice that the timeout is over
			return
		}
		v.ask(`(\*-1|_)\r\n`, "BLPOP", v.unique("nothing"), "0.00"+fmt.Sprint(1+v.rand.IntN(5)))
	case 8:
		ch := v.unique("channel")
		v.ask(v.push()+"3\r\n$9\r\nsubscribe\r\n"+wire.Bulk(ch)+":1\r\n",
			"SUBSCRIBE", ch)
		v.ask(v.push()+"3\r\n$11\r\nunsubscribe\r\n"+wire.Bulk(ch)+":0\r\n",
			"UNSUBSCRIBE")
	case 9:
		ch := v.unique("pattern")
		v.ask(v.push()+"3\r\n$10\r\npsubscribe\r\n"+wire.Bulk(ch)+":1\r\n",
			"PSUBSCRIBE", ch)
		v.ask(v.push()+"3\r\n$12\r\npunsubscribe\r\n"+wire.Bulk(ch)+":0\r\n", "PUNSUBSCRIBE", ch)
	case 10, 11:
		v.db = v.rand.IntN(3)
		v.ask(okReply, "SELECT", fmt.Sprint(v.db))
		v.ask(exactly+wire.Bulk(fmt.Sprint(v.db)), "GET", "db")
	case 12:
		v.proto = 2 + v.rand.IntN(2)
		v.ask(`(%7|\*14)\r\n(?s:.*)\$5\r\nproto\r\n:`+fmt.Sprint(v.proto)+`\r\n(?s:.*)`, "HELLO",
			fmt.Sprint(v.proto))
		v.ask(v.null(), "GET", "nothing")
	case 13:
		v.name = v.unique("name")
		v.ask(okReply, "CLIENT", "SETNAME", v.name)
	case 14:
		if v.rand.IntN(4) > 0 { // it stays at its home
			return
		}
		want := v.null()
		if v.name != "" {
			want = exactly + wire.Bulk(v.name)
		}
		v.ask(want, "CLIENT", "GETNAME")
	case 15, 16:
		u := v.unique("script")
		v.ask(v.array(2)+wire.Bulk(u)+wire.Bulk(fmt.Sprint(v.db)),
			"EVAL", "return {ARGV[1], redis.call('GET', 'db')}", "0", u)
	case 17:
		lock := v.unique("lock")
		v.ask(`:[1-9]\d+\r\n`, "LOCK", lock, "600")
		v.ask(exactly+":1\r\n", "UNLOCK", lock)
		v.ask(v.null(), "LOCKINFO", lock)
	case 18:
		v.ask(`-FENCED .*\r\n`, "FENCE", v.unique("lock"), "12345", "SET", v.key(), "fenced")
	case 19:
		v.db, v.proto, v.name = 0, 2, ""
		v.ask(exactly+"+RESET\r\n", "RESET")
		v.ask(exactly+"$1\r\n0\r\n", "GET", "db")
	case 20:
		v.ask("", "CLIENT", "REPLY", "SKIP")
		v.ask("", "ECHO", v.unique("skipped"))
		u := v.unique("after")
		v.ask(exactly+wire.Bulk(u), "ECHO", u)
	case 21:
		v.ask(okReply, "WATCH", v.key())
		v.ask(v.known(), "GET", v.key())
		v.ask(okReply, "UNWATCH")
	case 22:
		v.ask(`\*1\r\n`+`\*\d+\r\n(?s:.*)`, "COMMAND", "INFO", "lock")
	case 23:
		v.ask(`[$=]\d+\r\n(?s:.*)upstream_lanes(?s:.*)`, "INFO", "lockproxy")
	case 24:
		lock := v.unique("tracked")
		v.ask(okReply, "WATCH", v.key())
		v.ask(`:[1-9]\d+\r\n`, "LOCK", lock, "600")
		u := v.unique("multi")
		v.ask(okReply, "MULTI")
		v.ask(queuedReply, "ECHO", u)
		v.ask(v.array(1)+wire.Bulk(u), "EXEC")
		v.ask(exactly+":1\r\n", "UNLOCK", lock)
	}
}

// live is the life of one connection.
func (v *victim) live(addr string, over func() bool) {
	c := proxytest.Dial(v.t, addr)
	defer c.Close()
	v.proto, v.value = 2, map[int]string{}
	for range 10 + v.rand.IntN(100) {
		if over() || v.t.Failed() {
			return
		}
		v.raw, v.want, v.sent = v.raw[:0], v.want[:0], v.sent[:0]
		for range 1 + v.rand.IntN(30) {
			v.step()
		}
		if !v.exchange(c) {
			return
		}
	}
}

// exchange sends the gathered requests and checks each reply. It returns false if the connection is
// of no further use.
func (v *victim) exchange(c *proxytest.Conn) bool {
	written := make(chan struct{})
	go func() { // ends when all is written, or the connection closed; waited for below
		defer close(written)
		for b := v.raw; len(b) > 0; {
			n := 1 + v.rand.IntN(len(b))
			if _, err := c.Write(b[:n]); err != nil {
				return
			}
			b = b[n:]
		}
	}()
	defer func() { <-written }()
	for i, want := range v.want {
		exact, isExact := strings.CutPrefix(want, exactly)
		got, err := c.TryReply()
		v.asked.Add(1)
		if v.losses && (err != nil && !proxytest.IsTimeout(err) ||
			strings.HasPrefix(got, "-UPSTREAM ")) {
			v.lost.Add(1)
			c.Close() // the state is unknown now
			return false
		}
		if err != nil {
			v.t.Errorf("client %d, %s: no reply: %v, have %.200q", v.id, v.sent[i], err, got)
			c.Close()
			return false
		}
		if isExact && got == exact {
			continue
		}
		if ok, _ := regexp.MatchString("^"+want+"$", got); isExact || !ok {
			v.t.Errorf(
				"client %d (RESP%d), request %d of %d, %s: got %.300q, want %.300q, before it %s",
				v.id, v.proto, i, len(v.want), v.sent[i], got, want, v.sent[:i])
			c.Close()
			return false
		}
	}
	return true
}
