//go:build memory

package relay_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// 10,000 clients that have asked for one value each take 50 connections of each Redis at most, and
// 8 KB of the proxy's memory each, with what its own connections to Redis have taken at most: a
// connection with TLS takes some 50 KB more, and clients that come at the same moment can have one
// each to every master.
func TestMemoryOfManyClients(t *testing.T) {
	t.Run("one Redis", func(t *testing.T) {
		redis := testredis.Start(t)
		manyClients(t, redis.URL(), []*testredis.Server{redis})
	})
	t.Run("cluster", func(t *testing.T) {
		c := testredis.StartCluster(t, 3, 0)
		manyClients(t, c.URL(), c.Nodes)
	})
}

const (
	manyClientsN      = 10_000
	manyConnections   = 50
	memoryOfOneClient = 8 << 10
	memoryOfOneByTLS  = 10 << 10
	// askAtOnce can have a home each; the proxy has lanes besides.
	askAtOnce = 30
)

func manyClients(t *testing.T, url string, nodes []*testredis.Server) {
	p := startHostileProxyAt(t, proxytest.Binary(t), nodes[0], url,
		"--max-clients", fmt.Sprint(2*manyClientsN))
	few := func() bool {
		for _, node := range nodes {
			if n := hostileConnections(t, node) - 1; n > manyConnections {
				return false
			}
		}
		return true
	}
	clients := make([]net.Conn, manyClientsN)
	defer func() {
		for _, nc := range clients {
			if nc != nil {
				nc.Close()
			}
		}
	}()
	ask := func(from, to int) {
		var next atomic.Int64
		next.Store(int64(from))
		var asking sync.WaitGroup
		for range askAtOnce {
			asking.Go(func() { // ends when all have asked; waited for below
				for i := int(next.Add(1)) - 1; i < to; i = int(next.Add(1)) - 1 {
					if err := asksOnce(&clients[i], p.addr, i); err != nil {
						t.Errorf("client %d: %v", i, err)
						return
					}
				}
			})
		}
		asking.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	first := 100 // what the proxy makes once exists from then on
	ask(0, first)
	before := p.memory("VmRSS")
	for from, to := first, 1000; from < manyClientsN; from, to = to, to+1000 {
		ask(from, to)
		testwait.Until(t, "clients share connections", few) // those that ask at once can have homes
	}
	most := int64(memoryOfOneClient)
	if strings.HasPrefix(testredis.Reach(url), "rediss") {
		most = memoryOfOneByTLS
	}
	per := func() int64 { return (p.memory("VmRSS") - before) / int64(manyClientsN-first) }
	t.Logf("%d bytes a client", per())
	testwait.Until(t, "a client takes little memory", func() bool {
		return per() <= most
	})
	ask(0, manyClientsN)
	testwait.Until(t, "clients share connections when they ask again", few)
	t.Logf("%d bytes a client when all have asked again", per())
	for _, node := range nodes {
		t.Logf("%s has %d connections", node.Addr(), hostileConnections(t, node)-1)
	}
}

// asksOnce has a client ask for a value of its own, which there is none of; it connects first if it
// has not.
func asksOnce(nc *net.Conn, addr string, i int) (err error) {
	if *nc == nil {
		if *nc, err = proxytest.TryDial(addr); err != nil {
			return err
		}
	}
	(*nc).SetDeadline(testwait.Deadline())
	if _, err := fmt.Fprintf(*nc, "GET many%d\r\n", i); err != nil {
		return err
	}
	var reply [16]byte
	n, err := (*nc).Read(reply[:])
	if got := string(reply[:n]); err == nil && got != "$-1\r\n" {
		err = fmt.Errorf("GET is answered %q", got)
	}
	return err
}
