package locks_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/faults/relay"
	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
	"lockproxy/proxy"
)

var tokenReply = regexp.MustCompile(`:\d{16}\r\n`)

// A pipeline that contains lock commands is answered as if
// its commands were sent one after another.
func TestLockBatch(t *testing.T) {
	t.Parallel()
	_, alone := proxytest.StartBoth(t)
	link := proxytest.LinkTo(t, testredis.Start(t))
	together := proxytest.Start(t, "redis://"+link.Addr(), nil)
	commands := []string{"LOCK k%d 300", "LOCK k%d 300", "LOCK k%d 300", "UNLOCK k%d", "UNLOCK k%d",
		"UNLOCK k%d FORCE", "UNLOCK k%d 1", "UNLOCK k%d no-token", "EXISTS k%d",
		"PING", "LOCK k%d", "LOCK k%d soon", "LOCK k%d 300 OWNER me", "UNLOCK", "SET k%d x",
		"DEL k%d", "GET none%d", "MULTI", "EXEC", "DISCARD", "SELECT 1", "SELECT 0",
		"CLIENT REPLY SKIP", "RELOCK k%d 1 300", "NOSUCHCOMMAND", "SUBSCRIBE c", "UNSUBSCRIBE c"}
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 250 {
		one, many := proxytest.Dial(t, alone.Addr), proxytest.Dial(t, together.Addr)
		if round%2 == 1 {
			one.Do("HELLO 3")
			many.Do("HELLO 3")
		}
		if round%4 == 3 { // on a home
			one.Do("CLIENT ID")
			many.Do("CLIENT ID")
		}
		// Far away, what comes later is asked while the first commands are.
		link.Set(relay.Link{Latency: time.Duration(round/4%2) * 300 * time.Microsecond})
		var pipeline []string
		inMulti := false
		for range 1 + random.IntN(60) {
			c := commands[random.IntN(len(commands))]
			if random.IntN(3) > 0 {
				c = commands[random.IntN(7)] // mostly locks
			}
			switch {
			case c == "MULTI":
				inMulti = true
			case c == "EXEC" || c == "DISCARD":
				inMulti = false
			case inMulti && strings.HasSuffix(c, "SUBSCRIBE c"):
				continue // after it replies can't be told apart, and refusals of locks don't wait
			}
			if strings.Contains(c, "%d") {
				c = fmt.Sprintf(c, random.IntN(12))
			}
			pipeline = append(pipeline, c)
		}
		pipeline = append(pipeline, "RESET", "FLUSHALL", "ECHO end")
		all := func(c *proxytest.Conn, send func()) (text string) {
			send()
			for !strings.HasSuffix(text, "$3\r\nend\r\n") {
				got, err := c.TryReply()
				if err != nil {
					t.Fatalf("seed %d, round %d, %q: %v after %q", seed, round, pipeline, err, text)
				}
				text += tokenReply.ReplaceAllString(got, ":token\r\n")
			}
			return text
		}
		want := all(one, func() {
			for _, c := range pipeline {
				one.WriteRaw(c + "\r\n")
				time.Sleep(50 * time.Microsecond)
			}
		})
		text := ""
		for _, c := range pipeline {
			words := strings.Fields(c)
			text += fmt.Sprintf("*%d\r\n", len(words))
			for _, w := range words {
				text += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
			}
		}
		got := all(many, func() {
			for pieces := random.IntN(6); pieces > 0 && len(text) > 0; pieces-- {
				cut := random.IntN(len(text))
				many.WriteRaw(text[:cut])
				text = text[cut:]
				time.Sleep(time.Duration(random.IntN(300)) * time.Microsecond)
			}
			many.WriteRaw(text)
		})
		if got != want {
			t.Fatalf("seed %d, round %d, %q:\n got %q\nwant %q", seed, round, pipeline, got, want)
		}
		one.Close()
		many.Close()
	}
}

// farAway starts a proxy of a Redis that is that far away,
// each way, and knows the scripts, and a client of it.
func farAway(t *testing.T, latency time.Duration) (*proxytest.Proxy, *proxytest.Conn) {
	t.Helper()
	link := proxytest.LinkTo(t, testredis.Start(t))
	p := proxytest.Start(t, "redis://"+link.Addr(), nil)
	c := proxytest.SharedClient(t, p.Addr)
	c.Lock("first 300")
	link.Set(relay.Link{Latency: latency})
	return p, c
}

// A lock command is asked while the script of an earlier one of its client runs.
func TestLockIsAskedWhileAnotherIs(t *testing.T) {
	t.Parallel()
	// A lane that is silent for more than 100 ms is not used again: under load, the sleep can last
	// that long.
	const way = 40 * time.Millisecond
	least := time.Hour
	for tries := 0; least > 5*way/2 && tries < 50; tries++ { // a stop hides that it is quick
		_, c := farAway(t, way)
		c.Send("LOCK a 300")
		time.Sleep(way)
		start := time.Now()
		c.Send("LOCK b 300")
		for range 2 {
			if got := c.Reply(); !tokenReply.MatchString(got) {
				t.Fatal(got)
			}
		}
		least = min(least, time.Since(start))
	}
	if least > 5*way/2 {
		t.Errorf("the second lock took %v, of which the way there and back takes %v", least, 2*way)
	}
}

// Locks whose replies are lost with the upstream connection are reported
// as unknown, and released; each reply goes to its own command. A client
// with its own upstream connection is disconnected then.
func TestLockBatchLost(t *testing.T) {
	t.Parallel()
	for _, dedicated := range []bool{false, true} {
		server := testredis.Start(t)
		p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated = dedicated })
		admin := proxytest.Dial(t, server.Addr())
		unknown := 0
		for round := range 30 {
			unknown += loseLocks(t, p, admin, round, dedicated)
		}
		t.Logf("dedicated %v: %d locks were unknown", dedicated, unknown)
		if unknown == 0 {
			t.Error("none was lost")
		}
	}
}

func loseLocks(t *testing.T, p *proxytest.Proxy, admin *proxytest.Conn, round int,
	dedicated bool) (unknown int) {
	const locks = 40
	c, other := proxytest.SharedClient(t, p.Addr), proxytest.Dial(t, p.Addr)
	defer c.Close()
	var pipeline []string
	for i := range locks {
		pipeline = append(pipeline, fmt.Sprintf("LOCK r%d:%d 300", round, i))
	}
	killed := make(chan struct{})
	go func() { // ends with the kill
		defer close(killed)
		time.Sleep(time.Duration(rand.IntN(600)) * time.Microsecond)
		admin.Do("CLIENT KILL TYPE normal SKIPME yes")
	}()
	c.Send(pipeline...)
	tokens := map[int]string{}
	closed := false
	for i := range locks {
		got, err := c.TryReply()
		if err != nil {
			if closed = err == io.EOF || errors.Is(err, syscall.ECONNRESET); !closed {
				t.Fatalf("round %d, lock %d: %v", round, i, err)
			}
			break
		}
		switch {
		case tokenReply.MatchString(got):
			tokens[i] = strings.Trim(got, ":\r\n")
		case strings.HasPrefix(got, "-UPSTREAM"):
			unknown++
		default:
			t.Fatalf("round %d, lock %d: %q", round, i, got)
		}
	}
	<-killed
	if dedicated && unknown > 0 && !closed {
		c.Closed()
	}
	other.Close()
	other = proxytest.SharedClient(t, p.Addr)
	defer other.Close()
	for i, token := range tokens {
		other.Expect(fmt.Sprintf("UNLOCK r%d:%d %s", round, i, token), ":1\r\n")
	}
	testwait.Until(t, "the other locks are released", func() bool {
		for i := range locks {
			if tokens[i] == "" && other.Do(fmt.Sprintf("EXISTS r%d:%d", round, i)) != ":0\r\n" {
				return false
			}
		}
		return true
	})
	return unknown
}

// Each lock is given only once replicas have it, even in a batch.
func TestLockBatchConfirmed(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Locks.Durability.MinReplicas, cfg.Locks.Durability.ReplicaTimeout = 1,
			20*time.Millisecond
	})
	c := proxytest.SharedClient(t, p.Addr)
	c.Send("LOCK a 300", "LOCK b 300", "UNLOCK a", "EXISTS a b")
	for _, want := range []string{"-NOREPLICAS", "-NOREPLICAS", ":0\r\n", ":0\r\n"} {
		if got := c.Reply(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// An UNLOCK whose hand-over replicas must confirm keeps its place in a batch.
func TestUnlockBatchWithConfirmedHandOver(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	holder := proxytest.SharedClient(t, proxytest.Start(t, server.URL(), nil).Addr)
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Locks.Durability.MinReplicas, cfg.Locks.Durability.ReplicaTimeout = 1,
			20*time.Millisecond
	})
	c, waiter := proxytest.SharedClient(t, p.Addr), proxytest.SharedClient(t, p.Addr)
	var pipeline []string
	for _, key := range []string{"a", "b", "c", "d"} {
		pipeline = append(pipeline, proxytest.Unlock(key, holder.Lock(key+" 30")))
	}
	waiter.Send("LOCK b 300 WAIT 300")
	proxytest.AwaitWaiters(t, p, "b", 1)
	c.Send(append(pipeline, "EXISTS a b c d")...)
	for i, want := range []string{":1\r\n", ":1\r\n", ":1\r\n", ":1\r\n", ":0\r\n"} {
		if got := c.Reply(); got != want {
			t.Errorf("reply %d: %q, want %q", i, got, want)
		}
	}
	if got := waiter.Reply(); !strings.HasPrefix(got, "-NOREPLICAS") {
		t.Errorf("the waiter: %q", got)
	}
}

// A client gets the reply to its first lock at once, even if a later one in the batch takes long.
func TestLockBatchAnswersEachAtOnce(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p := proxytest.Start(t, cluster.URL(), nil)
	c := proxytest.SharedClient(t, p.Addr)
	slow := cluster.MasterOf(cluster.Slot("slow"))
	var keys []string // of other nodes
	for i := 0; len(keys) < 3; i++ {
		if key := fmt.Sprint("k", i); cluster.MasterOf(cluster.Slot(key)) != slow {
			keys = append(keys, key)
		}
	}
	c.Expect(proxytest.Unlock("slow", c.Lock("slow 300")), ":1\r\n")
	for _, key := range keys {
		c.Expect(proxytest.Unlock(key, c.Lock(key+" 30")), ":1\r\n")
	}
	slow.Pause()
	c.Send("LOCK "+keys[0]+" 30", "LOCK "+keys[1]+" 30", "LOCK slow 300", "LOCK "+keys[2]+" 30",
		"PING")
	for range 2 {
		if got := c.Reply(); !tokenReply.MatchString(got) {
			t.Error(got)
		}
	}
	slow.Resume()
	for range 2 {
		if got := c.Reply(); !tokenReply.MatchString(got) {
			t.Error(got)
		}
	}
	if got := c.Reply(); got != "+PONG\r\n" {
		t.Error(got)
	}
}

// A batch waits once for an unreachable upstream, and not once for each command.
func TestUnlockBatchWithoutUpstream(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--requirepass", "pw")
	p := proxytest.Start(t, strings.Replace(server.URL(), "redis://", "redis://:pw@", 1),
		func(cfg *proxy.Config) {
			cfg.DialTimeout = 300 * time.Millisecond
		})
	server.Pause()
	defer server.Resume()
	c := proxytest.Dial(t, p.Addr)
	c.Send("UNLOCK a 1", "UNLOCK b 1", "UNLOCK c 1", "UNLOCK d 1", "UNLOCK e 1", "UNLOCK f 1")
	for range 6 {
		if got := c.Reply(); !strings.HasPrefix(got, "-UPSTREAM") {
			t.Error(got)
		}
	}
}
