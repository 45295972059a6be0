package cluster_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// forgery is a push that any user can make Redis send, with CLIENT TRACKING REDIRECT. A reader that
// begins within its key reads the attacker's replies.
var forgery = func() string {
	key := "m:" + strings.Repeat("+++\r\n+FORGED\r\n:666\r\n", 40)
	return fmt.Sprintf(">2\r\n$10\r\ninvalidate\r\n*1\r\n%s", wire.Bulk(key))
}()

// Clients get their own replies whatever pushes come before, between and after those of all nodes.
func TestPushesAmongReplies(t *testing.T) {
	t.Parallel()
	for name, up := range startBothKinds(t, 0, "--requirepass", "secret") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for at := -1; at < 6; at++ { // -1 is everywhere
				for _, split := range []bool{false, true} {
					for _, s := range up.servers {
						s.Link.Insert(func(replies int) (now, later string) {
							switch {
							case at >= 0 && replies != at:
								return "", ""
							case split && replies < 10: // it takes its time
								return forgery[:len(forgery)/2], forgery[len(forgery)/2:]
							}
							return forgery, ""
						})
					}
					for i, login := range []string{"AUTH secret", "HELLO 3 AUTH default secret"} {
						p := proxytest.Start(t, up.url, func(cfg *proxy.Config) {
							cfg.Dedicated, cfg.UpstreamConns = proxytest.Dedicated, 1
						})
						for j := range 2 {
							c := proxytest.Dial(t, p.Addr)
							c.Send(login)
							if got := c.Answer(); got[0] == '-' {
								t.Fatalf("%s: %q", login, got)
							}
							c.Echoed(fmt.Sprintf("e%d-%d", i, j))
							c.Asked("MSET a 1 b 2 c 3 d 4", "+OK\r\n")
							c.Asked("MGET a b c d",
								"*4\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n$1\r\n4\r\n")
						}
						p.Server.Close()
					}
					if t.Failed() {
						t.Fatalf("with a push after reply %d, split %v", at, split)
					}
				}
			}
		})
	}
}

// Messages of all kinds come whole, each once and in order, among replies that are each the right
// one.
func TestMessagesAmongReplies(t *testing.T) {
	t.Parallel()
	for name, up := range startBothKinds(t, 0, "--notify-keyspace-events", "KEA") {
		for _, proto := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s, RESP%d", name, proto), func(t *testing.T) {
				t.Parallel()
				p := proxytest.Start(t, up.url, nil)
				prefix := fmt.Sprint("r", proto)
				c := proxytest.Dial(t, p.Addr)
				if proto == 3 {
					c.Asked("HELLO 3", "%")
					c.Asked("CLIENT TRACKING ON BCAST PREFIX "+prefix, "+OK\r\n")
				}
				kinds := []string{"SUBSCRIBE " + prefix + "ch", "PSUBSCRIBE " + prefix + "p*",
					"PSUBSCRIBE __keyspace@0__:" + prefix + "ev:*"}
				for _, shard := range []string{"a", "b", "c"} {
					kinds = append(kinds, "SSUBSCRIBE "+prefix+shard)
				}
				for _, kind := range kinds {
					c.Expect(kind, string("*>"[proto-2])+"3\r\n…")
				}
				heard := &heard{t: t, c: c, counts: map[string]int{}}
				const rounds = 200
				var publishing sync.WaitGroup
				publishing.Go(func() { // ends after its rounds
					pub := proxytest.Dial(t, p.Addr)
					for i := range rounds {
						pub.Send(fmt.Sprintf("PUBLISH %sch %d", prefix, i),
							fmt.Sprintf("PUBLISH %spat %d", prefix, i),
							fmt.Sprintf("SPUBLISH %sa %d", prefix, i),
							fmt.Sprintf("SPUBLISH %sb %d", prefix, i),
							fmt.Sprintf("SPUBLISH %sc %d", prefix, i),
							fmt.Sprintf("SET %sev:%d %d", prefix, i%7, i))
						for range 6 {
							pub.Reply()
						}
					}
				})
				for i := 0; heard.total() < rounds*6; i++ {
					heard.ask(proto, fmt.Sprintf("%s-%d", prefix, i))
				}
				publishing.Wait()
				for channel, n := range heard.counts {
					if n != rounds && !strings.Contains(channel, "ev:") {
						t.Errorf("%s: %d messages, not %d", channel, n, rounds)
					}
				}
				if proto == 3 && heard.invalidated == 0 {
					t.Error("no key was invalidated")
				}
			})
		}
	}
}

// heard is what a client is told that subscribes, and asks meanwhile.
type heard struct {
	t           *testing.T
	c           *proxytest.Conn
	counts      map[string]int // by channel; the next message's number but for events
	invalidated int
}

func (h *heard) total() (n int) {
	for _, count := range h.counts {
		n += count
	}
	return n
}

// ask sends a pipeline and reads its replies, and what comes between them.
func (h *heard) ask(proto int, mark string) {
	h.t.Helper()
	requests := []string{"PING " + mark + "1", "PING " + mark + "2"}
	wants := []string{"*2\r\n$4\r\npong\r\n" + wire.Bulk(mark+"1"),
		"*2\r\n$4\r\npong\r\n" + wire.Bulk(mark+"2")}
	if proto == 3 {
		requests = []string{"ECHO " + mark, "MSET x" + mark + " 1 y" + mark + " 2 z" + mark + " 3",
			"MGET x" + mark + " y" + mark + " z" + mark, "MULTI", "SET x" + mark + " 4", "EXEC",
			"DEL x" + mark + " y" + mark + " z" + mark, "PING " + mark}
		wants = []string{wire.Bulk(mark), "+OK\r\n",
			"*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n", "+OK\r\n", "+QUEUED\r\n", "*1\r\n+OK\r\n",
			":3\r\n", wire.Bulk(mark)}
	}
	h.c.Send(requests...)
	for i, want := range wants {
		got := h.c.Reply()
		for h.isMessage(got) {
			got = h.c.Reply()
		}
		if got != want {
			h.t.Fatalf("%s is answered %q, not %q", requests[i], got, want)
		}
	}
}

// isMessage judges a message, if raw is one.
func (h *heard) isMessage(raw string) bool {
	_, elems, err := wire.Elements(raw)
	if err != nil || len(elems) < 2 {
		return false
	}
	switch kind, _ := wire.Parse(elems[0]); kind.Text {
	case "invalidate":
		h.invalidated++
	case "message", "smessage", "pmessage":
		v, _ := wire.Parse(elems[len(elems)-2])
		text, _ := wire.Parse(elems[len(elems)-1])
		channel := v.Text
		if strings.HasPrefix(channel, "__keyspace") {
			if text.Text != "set" {
				h.t.Errorf("%q", raw)
			}
		} else if text.Text != strconv.Itoa(h.counts[channel]) {
			h.t.Errorf("behind %d messages: %q", h.counts[channel], raw)
		}
		h.counts[channel]++
	default:
		return false
	}
	return true
}
