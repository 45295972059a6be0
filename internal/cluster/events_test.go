package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"lockproxy/internal/cluster"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// received is the last words of the messages that have come to a client, each with how often it
// came.
type received struct {
	mu    sync.Mutex
	times map[string]int
}

// listen counts a client's messages until its connection ends.
func listen(k *client) *received {
	h := &received{times: map[string]int{}}
	go func() { // ends with the connection
		for {
			raw, err := wire.ReadReply(k.in, wire.Either)
			if err != nil {
				return
			}
			v, err := wire.Parse(raw)
			if err != nil || len(v.Elems) < 3 {
				continue
			}
			h.mu.Lock()
			h.times[v.Elems[len(v.Elems)-1].Text]++
			h.mu.Unlock()
		}
	}()
	return h
}

func (h *received) of(word string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.times[word]
}

// All masters tell subscribers what happens to their keys, each event once, also after slots have
// moved and replicas have taken over.
func TestKeyspaceNotifications(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, 3, 1)
	cl := cluster.New(c.Addrs())
	ctx, cancel := context.WithCancel(t.Context())
	followed := make(chan struct{})
	go func() { // ends with the test
		defer close(followed)
		cl.Follow(ctx, dialer, nil, func(error) {})
	}()
	defer func() { cancel(); <-followed }()
	k := openAt(t, cl)
	for _, node := range c.Nodes {
		node.Ask("CONFIG", "SET", "notify-keyspace-events", "KEA")
	}
	var subscribers []*received
	for _, commands := range [][]string{
		{"SUBSCRIBE other __keyevent@0__:set"},
		{"PSUBSCRIBE *"},
		{"HELLO 3", "PSUBSCRIBE __key*__:set"},
		{"PSUBSCRIBE x*", "SUBSCRIBE __keyevent@0__:set __keyspace@0__:other"},
	} {
		s := openAt(t, cl)
		for _, command := range commands {
			s.ask(command)
		}
		for range strings.Count(commands[len(commands)-1], " ") - 1 {
			s.reply()
		}
		subscribers = append(subscribers, listen(s))
	}
	n := 0
	// set writes keys of all masters, and returns them.
	set := func() (keys []string) {
		for range 30 {
			n++
			key := fmt.Sprint("event:", n)
			if got := k.ask("SET " + key + " 1"); got == ok {
				keys = append(keys, key)
			}
		}
		return keys
	}
	heard := func(keys []string) bool {
		return !slices.ContainsFunc(subscribers, func(h *received) bool {
			return slices.ContainsFunc(keys, func(key string) bool { return h.of(key) == 0 })
		})
	}
	once := func(when string, keys []string) {
		t.Helper()
		testwait.Until(t, when+": all are heard", func() bool { return heard(keys) })
		behind := set() // what comes twice has come with these
		testwait.Until(t, when+": what is behind is heard", func() bool { return heard(behind) })
		for i, h := range subscribers {
			for _, key := range keys {
				if got := h.of(key); got != 1 {
					t.Errorf("%s: subscriber %d has heard %d times of SET %s", when, i, got, key)
				}
			}
		}
	}
	// subscribed returns when all subscribers are at all masters. That they hear everything says less:
	// a replica tells of writes too, and so does one that was a master until they have left it.
	subscribed := func() {
		t.Helper()
		looks := 0
		testwait.Until(t, "the subscriptions have followed", func() bool {
			if looks++; looks%50 == 0 {
				set()
			}
			return !slices.ContainsFunc(c.Nodes, func(node *testredis.Server) bool {
				clients := node.Ask("CLIENT", "LIST", "TYPE", "pubsub")
				return strings.Contains(node.Ask("ROLE"), "master") &&
					strings.Count(clients, "id=") < len(subscribers)
			})
		})
	}
	once("at first", set())
	k.expect("PUBLISH other once", ":2\r\n")
	k.expect("PUBLISH xy twice", ":2\r\n")
	once("behind messages", set())
	for i, want := range []int{1, 1, 0, 0} {
		if got := subscribers[i].of("once"); got != want {
			t.Errorf("subscriber %d has heard %d times of a message", i, got)
		}
	}
	for slot := range 5 {
		c.Migrate(slot*1000, c.Nodes[2])
	}
	once("after slots have moved", set())
	during := set
	for _, old := range []*testredis.Server{c.Nodes[1], c.Nodes[0]} {
		c.Failover(old)
		keys := during()
		for i, h := range subscribers {
			for _, key := range keys {
				if h.of(key) > 1 {
					t.Errorf("at a failover: subscriber %d has heard twice of SET %s", i, key)
				}
			}
		}
		subscribed()
		once("after a failover", set())
	}
	c.KillMaster(c.Nodes[2])
	testwait.Until(t, "the new master serves", func() bool {
		return k.ask("SET "+keyAt(t, c, 5, "killed")+" 1") == ok
	})
	subscribed()
	once("after a master was killed", set())
}

// A client that has unsubscribed hears nothing more, and can ask all nodes.
func TestKeyspaceNotificationsEnd(t *testing.T) {
	c := six(t)
	for _, node := range c.Nodes[:3] {
		node.Ask("CONFIG", "SET", "notify-keyspace-events", "KEA")
		defer node.Ask("CONFIG", "SET", "notify-keyspace-events", "")
	}
	k, other := open(t, c), open(t, c)
	keys := []string{keyAt(t, c, 0, "e"), keyAt(t, c, 1, "e"), keyAt(t, c, 2, "e")}
	for _, all := range []bool{false, true} {
		k.send("SUBSCRIBE __keyevent@0__:set", "PSUBSCRIBE __keyspace@0__:e*")
		k.reply()
		k.reply()
		for _, key := range keys {
			other.expect("SET "+key+" 1", ok)
		}
		for range 6 {
			if got := k.reply(); !strings.Contains(got, "message") {
				t.Fatalf("%q", got)
			}
		}
		k.expect("SUNSUBSCRIBE", "*3\r\n$12\r\nsunsubscribe\r\n$-1\r\n:0\r\n")
		other.expect("SET "+keys[0]+" 1", ok)
		k.reply()
		k.reply()
		if all {
			k.send("UNSUBSCRIBE", "PUNSUBSCRIBE")
		} else {
			k.send("UNSUBSCRIBE __keyevent@0__:set", "PUNSUBSCRIBE __keyspace@0__:e*")
		}
		k.reply()
		k.reply()
		for _, key := range keys {
			other.expect("SET "+key+" 2", ok)
			k.expect("GET "+key, "$1\r\n2\r\n")
		}
	}
}
