package relay_test

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// Each conversation is sent in one write, directly and
// through the proxy, and must yield the same bytes.
func TestRelayIsByteEqual(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 1<<16)
	conversations := map[string][]string{
		"pipeline": {"SET a 1", "INCR a", "GET a", "NOSUCH x", "GET", "LPUSH l 1 2 3",
			"LRANGE l 0 -1", "GET l", "DEL a l"},
		"resp3": {"HELLO 3 SETNAME me", "HSET h f v", "HGETALL h", "GET none",
			"ZADD z 1.5 m", "ZSCORE z m", "SMEMBERS none", "CLIENT GETNAME"},
		"transaction": {"MULTI", "SET a 1", "NOSUCH", "EXEC", "MULTI", "SET a 2", "GET a", "EXEC",
			"EXEC", "WATCH a", "MULTI", "DISCARD"},
		"pubsub": {"SUBSCRIBE a b", "PSUBSCRIBE c*", "PING", "GET x", "UNSUBSCRIBE",
			"PUNSUBSCRIBE", "GET x"},
		"pubsub resp3": {"HELLO 3", "SUBSCRIBE a", "PUBLISH a hello", "GET x", "UNSUBSCRIBE",
			"GET x"},
		"blocking": {"BLPOP none 0.02", "RPUSH l x", "BLPOP l 0", "XREAD BLOCK 10 STREAMS s $",
			"WAIT 0 10"},
		"tracking": {"HELLO 3", "CLIENT TRACKING ON", "SET t 1", "GET t", "SET t 2", "GET t",
			"CLIENT TRACKING OFF"},
		"scripts": {"EVAL return{1,{'a',false}} 0", "SCRIPT LOAD return(1)",
			"EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0", "EVAL error('x') 0"},
		"reset": {"SELECT 3", "MULTI", "RESET", "SELECT 99", "CLIENT REPLY SKIP", "GET a",
			"GET b", "CLIENT REPLY OFF", "GET c", "CLIENT REPLY ON"},
		"big": {"SET big " + big, "GET big", "APPEND big x", "STRLEN big",
			"GETRANGE big 0 70000"},
	}
	server, p := proxytest.StartBoth(t)
	run := func(addr string, commands []string) []byte {
		proxytest.Dial(t, server.Addr()).Expect("FLUSHALL", "+OK\r\n")
		c := proxytest.Dial(t, addr)
		go c.Send(append(commands, "ECHO the-end")...)
		var got bytes.Buffer
		for !bytes.HasSuffix(got.Bytes(), []byte("the-end\r\n")) {
			got.WriteString(c.Reply())
		}
		return got.Bytes()
	}
	for name, commands := range conversations {
		direct, proxied := run(server.Addr(), commands), run(p.Addr, commands)
		direct, proxied = withoutID(direct), withoutID(proxied)
		if !bytes.Equal(direct, proxied) {
			t.Errorf("%s: %d bytes directly, %d through the proxy:\n%.2000q\n%.2000q", name,
				len(direct), len(proxied), direct, proxied)
		}
	}
}

// withoutID blanks the connection's number in HELLO's reply.
func withoutID(raw []byte) []byte {
	if i := bytes.Index(raw, []byte("$2\r\nid\r\n:")); i >= 0 {
		end := i + 9 + bytes.IndexByte(raw[i+9:], '\r')
		raw = append(append([]byte{}, raw[:i+9]...), raw[end:]...)
	}
	return raw
}

func TestInlineCommands(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	c.WriteRaw("\r\n\nSET k \"a b\\x41\"\r\nGET k\nLOCK 'job' 600\r\nUNLOCK job\r\nSET k \"oops\r\n")
	for _, want := range []string{"+OK\r\n", "$4\r\na bA\r\n", ":…", ":1\r\n",
		"-ERR Protocol error: unbalanced quotes in request\r\n"} {
		got := c.Reply()
		if prefix, open := strings.CutSuffix(want, "…"); got != want &&
			!(open && strings.HasPrefix(got, prefix)) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	c.Closed()
}

// Both directions run at once: more is sent than all buffers
// on the way hold before the first reply is read.
func TestLongPipeline(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	const n = 200_000
	written := make(chan struct{})
	go func() { // waited for below
		defer close(written)
		request := []byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$40\r\n" + strings.Repeat("v", 40) +
			"\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
		for range n / 100 {
			if _, err := c.Write(bytes.Repeat(request, 100)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	testwait.For(t, "all is written", written)
	want := []byte("+OK\r\n$40\r\n" + strings.Repeat("v", 40) + "\r\n")
	got := make([]byte, len(want))
	c.SetReadDeadline(testwait.Deadline())
	for i := range n {
		if _, err := io.ReadFull(c.In, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("pair %d: %q, %v", i, got, err)
		}
	}
}

// A client that closes its sending side still gets every reply, as with "printf … | nc".
func TestHalfClose(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	for _, addr := range []string{server.Addr(), p.Addr} {
		c := proxytest.Dial(t, addr)
		c.Send("SET a 1", "INCR a", "GET a")
		c.Conn.(interface{ CloseWrite() error }).CloseWrite()
		c.SetReadDeadline(testwait.Deadline())
		if got, err := io.ReadAll(c.In); string(got) != "+OK\r\n:2\r\n$1\r\n2\r\n" || err != nil {
			t.Errorf("%s: %q, %v", addr, got, err)
		}
	}
}

// leavesBlocked closes a client that has sent BLPOP once it is blocked, and fails unless it is
// blocked no more after that. direct is the only other client of Redis.
func leavesBlocked(t *testing.T, client, direct *proxytest.Conn) {
	t.Helper()
	blocked := func(n string) func() bool {
		return func() bool {
			return strings.Contains(direct.Do("INFO clients"), "blocked_clients:"+n)
		}
	}
	testwait.Until(t, "BLPOP blocks", blocked("1"))
	client.Close()
	testwait.Until(t, "BLPOP ends with its client", blocked("0"))
}

// A client that vanishes while it is blocked takes no element with it.
func TestVanishedWhileBlocked(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	for _, after := range []string{"", "LOCK job 600"} {
		c := proxytest.Dial(t, p.Addr)
		c.Send("BLPOP queue 0")
		if after != "" {
			c.Send(after)
		}
		blocked := func() bool {
			return strings.Contains(direct.ClientList(proxytest.Ctx).Val(), "cmd=blpop")
		}
		testwait.Until(t, "the client is blocked", blocked)
		c.Close()
		testwait.Until(t, "the upstream connection is gone", func() bool {
			return !blocked()
		})
		direct.RPush(proxytest.Ctx, "queue", "x")
		if n := direct.LLen(proxytest.Ctx, "queue").Val(); n != 1 {
			t.Errorf("after %q: the queue has %d elements, want 1", after, n)
		}
		direct.Del(proxytest.Ctx, "queue")
	}
}

func TestGoRedis(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	for _, protocol := range []int{2, 3} {
		c := redis.NewClient(testredis.Patient(&redis.Options{Addr: p.Addr, Protocol: protocol}))
		defer c.Close()
		pipe := c.TxPipeline()
		for i := range 100 {
			pipe.Set(proxytest.Ctx, fmt.Sprint("k", i), i, time.Minute)
		}
		if _, err := pipe.Exec(proxytest.Ctx); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Get(proxytest.Ctx, "k99").Int(); n != 99 || err != nil {
			t.Errorf("k99 = %d, %v", n, err)
		}
		sub := c.Subscribe(proxytest.Ctx, "news")
		defer sub.Close()
		if _, err := sub.Receive(proxytest.Ctx); err != nil {
			t.Fatal(err)
		}
		c.Publish(proxytest.Ctx, "news", "hello")
		if m, err := sub.ReceiveMessage(proxytest.Ctx); err != nil || m.Payload != "hello" {
			t.Errorf("message %v, %v", m, err)
		}
		token, err := c.Do(proxytest.Ctx, "LOCK", "job", 300).Int64()
		if err != nil || token == 0 {
			t.Errorf("LOCK: %d, %v", token, err)
		}
		if err := c.Do(proxytest.Ctx, "LOCK", "job", 300).Err(); err != redis.Nil {
			t.Errorf("second LOCK: %v", err)
		}
		if n, err := c.Do(proxytest.Ctx, "UNLOCK", "job", token).Int(); n != 1 || err != nil {
			t.Errorf("UNLOCK: %d, %v", n, err)
		}
	}
}

// unknownLock is what Redis says to LOCK. As of 8.6 it says nothing of arguments that are not there.
var unknownLock = regexp.MustCompile(`-ERR unknown command 'LOCK'(, with args beginning with: )?\r\n`)

// REPLCONF ACK is answered only if it is refused: each reply goes to the right request in both
// cases.
func TestMaybeAnsweredCommands(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	const acks = 20
	for _, login := range []string{"PING", "HELLO 2", "HELLO 3"} {
		direct, through := proxytest.Dial(t, server.Addr()), proxytest.Dial(t, p.Addr)
		for _, c := range []*proxytest.Conn{direct, through} {
			c.Do(login)
		}
		key := strings.ReplaceAll(login, " ", "-")
		pipeline := []string{"REPLCONF ACK 0", "ECHO one", "REPLCONF GETACK *",
			"REPLCONF listening-port 1 ACK 0", "LOCKINFO nothing", "REPLCONF ACK 0", "REPLCONF ACK",
			"REPLCONF ACK 0 x",
			"NOSUCHCOMMAND", "CLIENT REPLY SKIP", "REPLCONF ACK 0", "ECHO two", "CLIENT REPLY OFF",
			"REPLCONF ACK 0", "GET a", "CLIENT REPLY ON", "ECHO three",
			"MULTI", "REPLCONF ACK 0", "DISCARD", "SUBSCRIBE ch", "REPLCONF ACK 0",
			"UNSUBSCRIBE ch", "LOCK", "REPLCONF ACK 0", "MONITOR", "MONITOR", "RESET", "QUIT"}
		all := func(c *proxytest.Conn) (text string) {
			c.Send(pipeline...)
			for {
				got, err := c.TryReply()
				if err != nil {
					return text
				}
				// MONITOR's feed; what only one of them knows
				if !strings.HasPrefix(got, "+1") && !strings.Contains(got, "'lock") {
					text += got
				}
			}
		}
		null := "$-1\r\n"
		if strings.Contains(login, "HELLO 3") {
			null = "_\r\n"
		}
		want := strings.Replace(all(direct),
			"-ERR unknown command 'LOCKINFO', with args beginning with: 'nothing' \r\n", null, 1)
		want = unknownLock.ReplaceAllString(want, "")
		got := all(through)
		if got != want {
			t.Errorf("%s:\n got %q\nwant %q", login, got, want)
		}
		c := proxytest.Dial(t, p.Addr)
		c.Do(login)
		for range acks {
			c.Send("REPLCONF ACK 0")
		}
		c.Expect("MONITOR", "+OK\r\n")
		c.Send("MONITOR", "REPLCONF ACK 0", "RESET")
		for got := c.Reply(); got != "+RESET\r\n"; got = c.Reply() {
			if !strings.HasPrefix(got, "+1") {
				t.Errorf("%s: %q among MONITOR's feed", login, got)
			}
		}
		c.Lock(key + " 600")
	}
}

// A MONITOR that was allowed and isn't any more is answered the second time.
func TestSecondMonitorIsRefused(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("ACL SETUSER spy on >p ~* &* +@all", "+OK\r\n")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("AUTH spy p", "+OK\r\n")
	c.Expect("MONITOR", "+OK\r\n")
	c.Send("MONITOR")
	testwait.Until(t, "Redis has read both", func() bool {
		return strings.Contains(admin.Do("INFO commandstats"), "cmdstat_monitor:calls=2,")
	})
	admin.Expect("ACL SETUSER spy -monitor", "+OK\r\n")
	c.Send("MONITOR", "PING", "RESET")
	var got []string
	for last := ""; last != "+RESET\r\n"; {
		if last = c.Reply(); !strings.HasPrefix(last, "+1") {
			got = append(got, last)
		}
	}
	if len(got) != 3 || !strings.HasPrefix(got[0], "-NOPERM") || got[1] != "+PONG\r\n" {
		t.Errorf("%q", got)
	}
}

// A client that must log in first is told so, as by Redis.
func TestUnansweredCommandBeforeLogin(t *testing.T) {
	server := testredis.Start(t, "--requirepass", "secret")
	c := proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
	c.Expect("REPLCONF ACK 0", "-NOAUTH Authentication required.\r\n")
	c.Expect("AUTH secret", "+OK\r\n")
	c.Send("REPLCONF ACK 0", "PING")
	if got := c.Reply(); got != "+PONG\r\n" {
		t.Errorf("got %q", got)
	}
}

// REPLCONF ACK is never answered, and each reply after it goes to the right request.
func TestUnansweredCommands(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	c.Send("REPLCONF GETACK *", "PING", "REPLCONF ACK 0", "LOCK job 600", "MULTI", "REPLCONF ACK 0",
		"DISCARD", "UNLOCK job")
	for _, want := range []string{"+PONG\r\n", ":", "+OK\r\n", "+QUEUED\r\n", "+OK\r\n", ":1\r\n"} {
		if got := c.Reply(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
