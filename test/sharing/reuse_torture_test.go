package sharing_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// Clients come, use connections of their own, and leave in all ways, many at a time, while what they
// have asked for before still comes: messages, invalidations, elements of lists. The next client that
// gets such a connection finds it new, and is told nothing but its own replies, which it knows by its
// marks. make long SUITE=torture asks for many more replies.
func TestReuseTorture(t *testing.T) {
	t.Parallel()
	t.Run("one Redis", func(t *testing.T) {
		server := testredis.Start(t)
		for db := range 4 {
			admin := proxytest.Dial(t, server.Addr())
			admin.Expect(fmt.Sprintf("SELECT %d", db), "+OK\r\n")
			admin.Expect(fmt.Sprintf("SET db %d", db), "+OK\r\n")
		}
		reuseAttacked(t, server.URL(), []*testredis.Server{server}, tortureRequests())
	})
	t.Run("cluster", func(t *testing.T) {
		c := testredis.StartCluster(t, 3, 0)
		reuseAttacked(t, c.URL(), c.Nodes, tortureRequests()/4)
	})
}

// reuse is clients of one proxy that follow one another.
type reuse struct {
	t       *testing.T
	addr    string
	single  bool // in front of one Redis
	answers atomic.Int64
	left    chan string // the marks of clients that have left
}

func reuseAttacked(t *testing.T, url string, servers []*testredis.Server, enough int64) {
	for _, server := range servers {
		server.Ask("ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all")
	}
	p := proxytest.Start(t, url, func(cfg *proxy.Config) { cfg.Dedicated = false })
	r := &reuse{t: t, addr: p.Addr, single: len(servers) == 1, left: make(chan string, 100)}
	seed := rand.Uint64()
	t.Log("seed", seed)
	var lives, haunting sync.WaitGroup
	ghost := proxytest.Dial(t, p.Addr)
	haunting.Go(func() { r.haunt(ghost) }) // ends when left is closed; waited for below
	for id := range 24 {
		lives.Go(func() { // ends when there are enough answers; waited for below
			random := rand.New(rand.NewPCG(seed, uint64(id)))
			for life := 0; r.answers.Load() < enough && !t.Failed(); life++ {
				c := &reuser{reuse: r, rand: random, mark: fmt.Sprintf("<%d.%d>", id, life)}
				c.live()
			}
		})
	}
	lives.Wait()
	close(r.left)
	haunting.Wait()
	ghost.Close()
	reused := p.Server.Stats().Connections.Reused
	t.Logf("%d answers, %d times a connection served another client", r.answers.Load(), reused)
	if reused == 0 {
		t.Error("no connection has served another client")
	}
	testwait.Until(t, "no client is left", func() bool {
		st := p.Server.Stats()
		return st.Clients == 0 && st.Connections.Shared == 0 && st.Connections.Homes == 0
	})
}

// haunt makes come what clients have asked for that have left.
func (r *reuse) haunt(ghost *proxytest.Conn) {
	for mark := range r.left {
		ghost.Send("PUBLISH secret <message>", "SPUBLISH {secret} <message>", "SET {secret} <value>",
			"RPUSH {trap"+mark+"} <element>", "ZADD {trap"+mark+"}z 1 <element>",
			"XADD {trap"+mark+"}x * <field> <value>")
		for range 6 {
			if got, err := ghost.TryReply(); err != nil || got[0] == '-' {
				r.t.Errorf("the ghost is told %q, %v", got, err)
			}
		}
	}
}

// reuser is one client.
type reuser struct {
	*reuse
	rand *rand.Rand
	mark string
	c    *proxytest.Conn
	loud bool // messages can come between replies
}

// news are requests that show a client that its connection is new, by their exact replies. @ stands
// for its mark.
var news = []struct {
	single bool
	ask    [][2]string
}{
	{false, [][2]string{{"CLIENT GETNAME", "$-1"}}},
	{false, [][2]string{{"ACL WHOAMI", "$7 default"}}},
	{false, [][2]string{{"ECHO @", "$ @"}, {"SET {@}k @", "+OK"}, {"GET {@}k", "$ @"}}},
	{false, [][2]string{{"GET {@}nothing", "$-1"}}},
	{false, [][2]string{{"MULTI", "+OK"}, {"SET {@}m @", "+QUEUED"}, {"GET {@}m", "+QUEUED"},
		{"EXEC", "*2 +OK $ @"}}},
	{false, [][2]string{{"RPUSH {@}l @", ":1"}, {"BLPOP {@}l 0", "*2 $ {@}l $ @"}}},
	{false, [][2]string{{"WATCH {@}w", "+OK"}, {"MULTI", "+OK"}, {"EXEC", "*0"}}},
	{false, [][2]string{{"MULTI", "+OK"}, {"ECHO @", "+QUEUED"}, {"DISCARD", "+OK"}}},
	{false, [][2]string{{"SUBSCRIBE c@", "*3 $9 subscribe $ c@ :1"},
		{"UNSUBSCRIBE c@", "*3 $11 unsubscribe $ c@ :0"}}},
	{true, [][2]string{{"GET db", "$1 0"}}},
	{true, [][2]string{{"CLIENT GETREDIR", ":-1"}}},
	{true, [][2]string{{"SELECT 2", "+OK"}, {"GET db", "$1 2"}, {"SELECT 0", "+OK"}, {"GET db", "$1 0"}}},
	{true, [][2]string{{"ACL WHOAMI", "$7 default"}, {"GET db", "$1 0"}, {"CLIENT GETNAME", "$-1"}}},
}

func (c *reuser) live() {
	nc, err := proxytest.TryDial(c.addr)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer nc.Close()
	c.c = proxytest.Dialed(c.t, nc)
	for range 1 + c.rand.IntN(4) {
		var asks [][2]string
		for range 1 + c.rand.IntN(4) {
			if n := news[c.rand.IntN(len(news))]; c.single || !n.single {
				asks = append(asks, n.ask...)
			}
		}
		if !c.exchange(asks, len(asks), "") {
			return
		}
	}
	c.leave(nc)
	c.left <- c.mark
}

// exchange sends requests in one or several pieces, and judges the first replies. It returns false
// if one of them is wrong.
func (c *reuser) exchange(asks [][2]string, replies int, tail string) (right bool) {
	var raw []byte
	for _, ask := range asks {
		words := strings.Fields(strings.ReplaceAll(ask[0], "@", c.mark))
		raw = wire.Append(raw, words...)
	}
	raw = append(raw, tail...)
	for len(raw) > 0 {
		n := len(raw)
		if c.rand.IntN(3) == 0 {
			n = 1 + c.rand.IntN(n)
		}
		if _, err := c.c.Write(raw[:n]); err != nil {
			c.t.Errorf("client %s: %v", c.mark, err)
			return false
		}
		raw = raw[n:]
	}
	for _, ask := range asks[:replies] {
		if ask[1] == "" { // there is no reply
			continue
		}
		got, err := c.reply()
		if want := c.wanted(ask[1]); err != nil || !matches(got, want) {
			c.t.Errorf("client %s, %s of %q: got %.300q, %v, want %q", c.mark, ask[0], asks, got, err,
				want)
			return false
		}
		c.answers.Add(1)
	}
	return true
}

// reply is the next reply. A loud client skips messages.
func (c *reuser) reply() (got string, err error) {
	for {
		got, err = c.c.TryReply()
		if !c.loud || err != nil || !strings.Contains(got, "message\r\n") &&
			!strings.Contains(got, "\r\ninvalidate\r\n") {
			return got, err
		}
	}
}

// wanted is a reply that is written with blanks, and without lengths of marks.
func (c *reuser) wanted(short string) string {
	words := strings.Fields(strings.ReplaceAll(short, "@", c.mark))
	for i, word := range words {
		if word == "$" {
			words[i] = fmt.Sprintf("$%d", len(words[i+1]))
		}
	}
	raw := strings.Join(words, "\r\n")
	if strings.HasSuffix(raw, "…") {
		return raw
	}
	return raw + "\r\n"
}

func matches(got, want string) bool {
	prefix, open := strings.CutSuffix(want, "…")
	return got == want || open && strings.HasPrefix(got, prefix)
}
