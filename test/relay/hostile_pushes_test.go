//go:build memory || faults

package relay_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
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

// A user with few rights except CLIENT TRACKING redirects invalidation pushes to all other
// connections as they are opened.
func TestHostilePushes(t *testing.T) { pushedAtRandom(t, 60) }

// pushedAtRandom has clients log in in many ways and ask for markers while foreign pushes arrive,
// and fails at each wrong reply.
func pushedAtRandom(t *testing.T, rounds int) {
	t.Run("server", func(t *testing.T) {
		server := testredis.Start(t)
		pushedOn(t, server, server.URL(), 16, rounds)
	})
	t.Run("cluster", func(t *testing.T) {
		node := testredis.StartCluster(t, 1, 0).Nodes[0]
		pushedOn(t, node, "redis+cluster://"+node.Addr(), 1, rounds)
	})
}

func pushedOn(t *testing.T, server *testredis.Server, url string, databases int,
	rounds int) {
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("ACL SETUSER alice on >a ~* &* +@all", "+OK\r\n")
	admin.Expect(
		"ACL SETUSER mallory on >m ~m:* resetchannels +set "+
			"+client|tracking +client|id +hello +auth", "+OK\r\n")
	p := proxytest.Start(t, url, func(cfg *proxy.Config) {
		cfg.Dedicated, cfg.UpstreamConns = proxytest.Dedicated, 2
	})
	var running sync.WaitGroup
	var asked, pushed, wrong, open atomic.Int64
	const clients = 9
	open.Store(clients)
	for range 3 {
		running.Go(func() { // ends when the others have
			for open.Load() > 0 && !t.Failed() {
				n, err := redirectToNext(server.Addr())
				pushed.Add(int64(n))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range clients {
		running.Go(func() { // ends with its rounds
			defer open.Add(-1)
			for round := 0; round < rounds && wrong.Load() < 20; round++ {
				n, err := marked(p.Addr, databases, fmt.Sprintf("mark-%d-%d", i, round))
				asked.Add(int64(n))
				if err != nil {
					wrong.Add(1)
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	t.Logf("%d markers asked for while %d redirections were taken: %d wrong", asked.Load(),
		pushed.Load(), wrong.Load())
	if pushed.Load() == 0 || asked.Load() == 0 {
		t.Error("no marker was asked for")
	}
}

// redirectToNext redirects mallory's pushes to the latest and the next connections, and returns how
// many of these there were.
func redirectToNext(addr string) (redirected int, err error) {
	c, err := diffDial(addr)
	if err != nil {
		return 0, err
	}
	var writing sync.WaitGroup
	defer writing.Wait()
	defer c.nc.Close()
	c.nc.SetDeadline(testwait.Deadline())
	if got := c.do("AUTH", "mallory", "m"); got != "+OK\r\n" {
		return 0, fmt.Errorf("AUTH: %q", got)
	}
	own, err := strconv.Atoi(strings.Trim(c.do("CLIENT", "ID"), ":\r\n"))
	if err != nil {
		return 0, err
	}
	for range 5 {
		var out []byte
		const before, after = 12, 12
		asks := 0
		for id := max(1, own-before); id < own+after; id++ {
			if id == own {
				continue
			}
			key := "m:" + strings.Repeat("+++\r\n+FORGED\r\n:666\r\n",
				[]int{1, 10, 40, 400}[rand.IntN(4)])
			out = wire.Append(out, "CLIENT", "TRACKING", "ON", "REDIRECT", strconv.Itoa(id),
				"BCAST", "PREFIX", "m:")
			out = wire.Append(out, "SET", key, "x")
			out = wire.Append(out, "CLIENT", "TRACKING", "OFF")
			asks++
		}
		writing.Go(func() { c.nc.Write(out) }) // ends with the connection at the latest
		for range asks {
			if c.reply() == "+OK\r\n" {
				redirected++
			}
			for range 2 {
				if got := c.reply(); got != "+OK\r\n" {
					return redirected, fmt.Errorf("mallory is answered %q", got)
				}
			}
		}
	}
	return redirected, nil
}

// marked logs in on a new connection and asks for texts that no other client asks for.
func marked(addr string, databases int, marker string) (asked int, err error) {
	c, err := diffDial(addr)
	if err != nil {
		return 0, err
	}
	defer c.nc.Close()
	c.nc.SetDeadline(testwait.Deadline())
	expect := func(want string, words ...string) {
		c.send(words...)
		got := c.reply()
		for got != "" && got[0] == '>' {
			got = c.reply()
		}
		asked++
		if err == nil && (got == "" || !strings.HasPrefix(got, want)) {
			err = fmt.Errorf("%s %q is answered %.200q, want %.200q", marker, words, got, want)
		}
	}
	switch rand.IntN(4) {
	case 0:
		expect("%", "HELLO", "3")
	case 1:
		expect("%", "HELLO", "3", "AUTH", "alice", "a")
	case 2:
		expect("+OK", "AUTH", "alice", "a")
		expect("%", "HELLO", "3")
	case 3:
		expect("+OK", "AUTH", "alice", "a")
	}
	expect("+OK", "SELECT", strconv.Itoa(rand.IntN(databases)))
	for i := 0; i < 6 && err == nil; i++ {
		text := fmt.Sprintf("%s-%d", marker, i)
		want := fmt.Sprintf("$%d\r\n%s\r\n", len(text), text)
		if i == 3 {
			expect("+OK", "MULTI")
			expect("+QUEUED", "ECHO", text)
			expect("*1\r\n"+want, "EXEC")
			continue
		}
		expect(want, "ECHO", text)
	}
	return asked, err
}
