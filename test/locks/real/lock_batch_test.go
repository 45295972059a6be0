package real_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
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
	pace := proxytest.Dial(t, alone.Addr)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 24 {
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
		link.Set(badlink.State{Latency: time.Duration(round/4%2) * 300 * time.Microsecond})
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
				pace.Do("PING") // meanwhile it is read, alone
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
				if random.IntN(2) == 0 {
					pace.Do("PING")
				}
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

// A lock command is asked while the script of an earlier one of its client runs. A lane that is
// silent for a while, as on a busy machine, is not used again: then the test tries again.
func TestLockIsAskedWhileAnotherIs(t *testing.T) {
	t.Parallel()
	server, polls := testredis.Start(t), startPolls(t)
	link := testredis.StartLink(t, server.Addr())
	p := proxytest.Start(t, "redis://"+link.Addr(), nil)
	for i := range 10 {
		c := proxytest.SharedClient(t, p.Addr)
		c.Lock(fmt.Sprintf("first:%d 300", i)) // so that Redis knows the script
		given := func(name string) bool {
			return server.Ask("EXISTS", fmt.Sprint(name, i)) == ":1"
		}
		link.HoldReplies()
		c.Send(fmt.Sprintf("LOCK a%d 300", i))
		testwait.Until(t, "Redis has given it", func() bool { return given("a") })
		c.Send(fmt.Sprintf("LOCK b%d 300", i))
		late, asked := polls.n.Load()+8, false
		testwait.Until(t, "Redis has given the other one, too, or some time has passed", func() bool {
			asked = given("b")
			return asked || polls.n.Load() > late
		})
		link.Release()
		for range 2 {
			if got := c.Reply(); !tokenReply.MatchString(got) {
				t.Error(got)
			}
		}
		if asked {
			return
		}
	}
	t.Error("it is asked only when the other has been answered")
}

// Locks whose replies are lost with the upstream connection are reported as unknown, and released,
// whether Redis has given them or not; each reply goes to its own command. A client with its own
// upstream connection is disconnected then.
func TestLockBatchLost(t *testing.T) {
	t.Parallel()
	for _, dedicated := range []bool{false, true} {
		server := testredis.Start(t)
		link := testredis.StartLink(t, server.Addr())
		p := proxytest.Start(t, "redis://"+link.Addr(),
			func(cfg *proxy.Config) { cfg.Dedicated = dedicated })
		for round, asked := range []bool{true, false, true, false} {
			loseLocks(t, server, link, p, round, dedicated, asked)
		}
	}
}

// loseLocks has the replies to the second half of a client's LOCKs lost; the requests, too, unless
// Redis is asked.
func loseLocks(t *testing.T, server *testredis.Server, link *badlink.Link, p *proxytest.Proxy,
	round int, dedicated, asked bool) {
	const half = 20
	c := proxytest.SharedClient(t, p.Addr)
	defer c.Close()
	var locks [2][]string
	lost, exist := []string{}, []string{"EXISTS"}
	for i := range 2 * half {
		key := fmt.Sprintf("r%d:%d", round, i)
		locks[i/half] = append(locks[i/half], "LOCK "+key+" 300")
		if i >= half {
			exist, lost = append(exist, key), append(lost, key)
		}
	}
	c.Send(locks[0]...)
	var tokens []int64
	for range half {
		tokens = append(tokens, proxytest.Token(t, c.Reply()))
	}
	if asked {
		link.HoldReplies()
	} else {
		link.Hold()
	}
	c.Send(locks[1]...)
	testwait.Until(t, "they are on their way", func() bool {
		return !asked && link.Holding() || asked && server.Ask(exist...) != ":0"
	})
	link.Cut()
	link.Release()
	unknown, closed, late := 0, false, map[string]int64{}
	for i := range half {
		got, err := c.TryReply()
		if closed = err != nil; closed {
			break
		}
		switch {
		case strings.HasPrefix(got, "-UPSTREAM"):
			unknown++
		case tokenReply.MatchString(got) && !dedicated: // a busy proxy has asked for it later
			late[lost[i]] = proxytest.Token(t, got)
		default:
			t.Fatalf("round %d, lock %d: %q", round, half+i, got)
		}
	}
	if dedicated && !closed {
		c.Closed()
	}
	if unknown == 0 && !closed { // which it is if it was no lane that was lost
		t.Errorf("round %d: none was lost", round)
	}
	other := proxytest.SharedClient(t, p.Addr)
	defer other.Close()
	for i, token := range tokens {
		other.Expect(proxytest.Unlock(fmt.Sprintf("r%d:%d", round, i), token), ":1\r\n")
	}
	for key, token := range late {
		other.Expect(proxytest.Unlock(key, token), ":1\r\n")
	}
	testwait.Until(t, "the other locks are released", func() bool {
		return server.Ask(exist...) == ":0"
	})
	for _, key := range lost { // and nothing takes them later
		other.Expect("UNLOCK "+key+" "+fmt.Sprint(other.Lock(key+" 300")), ":1\r\n")
	}
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
		pipeline = append(pipeline, proxytest.Unlock(key, holder.Lock(key+" 300")))
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
		c.Expect(proxytest.Unlock(key, c.Lock(key+" 300")), ":1\r\n")
	}
	slow.Pause()
	c.Send("LOCK "+keys[0]+" 300", "LOCK "+keys[1]+" 300", "LOCK slow 300", "LOCK "+keys[2]+" 300",
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
