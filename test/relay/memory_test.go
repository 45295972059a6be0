//go:build memory

package relay_test

import (
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// A lock that is held keeps its name in memory once, also when it has been renewed and Redis has
// reported that, and its session does not keep the buffer of the request.
func TestMemoryOfLongNames(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	const n, length = 20, 1_000_000
	live := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	proxytest.GoRedis(t, p.Addr).Ping(proxytest.Ctx)
	before := live()
	var holders []*proxytest.Conn
	for i := range n {
		c := proxytest.Dial(t, p.Addr)
		name := fmt.Sprintf("%s%d", strings.Repeat("k", length), i)
		request := string(wire.Append(nil, "LOCK", name, "30", "SESSION", "OWNER", "me"))
		read := p.Server.Stats().BytesIn
		c.WriteRaw(request[:length/2])
		testwait.Until(t, "the session has read the first half", func() bool {
			return p.Server.Stats().BytesIn >= read+length/2
		})
		c.WriteRaw(request[length/2:])
		proxytest.Token(t, c.Reply())
		c.In = nil
		holders = append(holders, c)
	}
	direct, older := proxytest.Dial(t, server.Addr()), false
	testwait.Until(t, "the last one is renewed", func() bool {
		ttl := direct.DoWords("PTTL", fmt.Sprintf("%s%d", strings.Repeat("k", length), n-1))
		ms, err := strconv.Atoi(strings.Trim(ttl, ":\r\n"))
		if err != nil || ms < 0 {
			t.Fatalf("PTTL: %q", ttl)
		}
		older = older || ms < 25_000
		return older && ms > 25_000
	})
	testwait.Until(t, "a lock takes the memory of its name, and little more", func() bool {
		per := (live() - before) / n
		t.Logf("%d bytes a lock", per)
		return per < length*3/2
	})
	runtime.KeepAlive(holders)
}

// What the proxy remembers of requests that have not been answered, or that EXEC will run, is
// bounded, however many they are.
func TestMemoryOfUnansweredRequests(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	other := proxytest.Dial(t, p.Addr)
	const ping = "PING\r\n"
	name := strings.Repeat("n", 100_000)
	for _, test := range []struct {
		first, request string
		times          int
	}{
		{"BLPOP nothing 0", "LOCK\r\n", 400_000},
		{"BLPOP nothing 0", string(wire.Append(nil, "CLIENT", "SETNAME", name)), 600},
		{"BLPOP nothing 0", string(wire.Append(nil, "AUTH", "nobody", name)), 600},
		{"BLPOP nothing 0", string(wire.Append(nil, "SET", name[:60_000], "", "NX")), 1000},
		{"MULTI", "SELECT 0\r\n", 600_000},
		{"MULTI", string(wire.Append(nil, "CLIENT", "SETNAME", name)), 600},
	} {
		t.Run(fmt.Sprintf("%s, %.16q", test.first, test.request), func(t *testing.T) {
			c := proxytest.Dial(t, p.Addr)
			c.Expect("PING", "+PONG\r\n")
			before := heapBytes()
			c.Send(test.first)
			go io.Copy(io.Discard, c.In) // ends with c
			piece := []byte(strings.Repeat(test.request, max(1, 10_000/len(test.request))))
			var sent atomic.Int64
			go func() { // ends when all is sent, or with c
				for left := test.times * len(test.request); left > 0; left -= len(piece) {
					if _, err := c.Write(piece); err != nil {
						return
					}
					sent.Add(int64(len(piece)))
				}
			}()
			// until all is read, or the proxy reads no further while it serves another client
			served := 0
			read := func() int64 {
				return sent.Load() + int64(p.Server.Stats().BytesIn) - int64(served*len(ping))
			}
			for looks, last := 0, read(); looks < 20; looks++ {
				if grown := heapBytes() - before; grown > 24<<20 {
					t.Fatalf("memory grew by %d MB", grown>>20)
				}
				for range 100 {
					other.WriteRaw(ping)
					other.WantReply("+PONG\r\n")
					served++
				}
				if now := read(); now != last {
					looks, last = 0, now
				}
			}
			c.Close()
		})
	}
}
