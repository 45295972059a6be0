//go:build !race

package virtual_test

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualnet"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// attackRelay stands between a proxy and its Redis and can hold back data on single connections.
type attackRelay struct {
	addr string
	away time.Duration // how long each piece takes

	mu    sync.Mutex
	rules []*attackRule         // guarded by mu
	conns map[net.Conn]struct{} // guarded by mu
	hears map[net.Conn]struct{} // guarded by mu; those of conns that have subscribed
}

// cutAny closes any one of the connections.
func (r *attackRelay) cutAny() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for nc := range r.conns {
		nc.Close()
		return
	}
}

// cutSubscribers closes the connections that have subscribed.
func (r *attackRelay) cutSubscribers() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for nc := range r.hears {
		nc.Close()
	}
}

// attackRule holds back, or cuts, the connections on which
// one side sends a piece that contains text.
type attackRule struct {
	up   bool // the side is the proxy, otherwise Redis
	text string
	cut  bool // close the connection instead of holding back
	met  chan struct{}
	over chan struct{}
	once sync.Once
}

func attackBoth(t *testing.T) (*virtualtest.Store, *attackRelay, *proxytest.Proxy) {
	return attackWith(t, nil)
}

// attackWith is attackBoth with a proxy that change has configured; it can be nil.
func attackWith(t *testing.T, change func(*proxy.Config)) (*virtualtest.Store, *attackRelay,
	*proxytest.Proxy) {
	t.Helper()
	server := virtualtest.StartStore(t)
	r := startAttackRelay(t, server, 0)
	p := proxytest.Start(t, "redis://"+r.addr, change)
	c := proxytest.Dial(t, p.Addr) // from now on the upstream knows the scripts by their hashes
	c.Expect(fmt.Sprintf("RELOCK warm %d 1", c.Lock("warm 1")), ":1\r\n")
	c.Expect("UNLOCK warm", ":1\r\n")
	return server, r, p
}

func startAttackRelay(t *testing.T, server *virtualtest.Store, away time.Duration) *attackRelay {
	ln := virtualnet.Listen()
	t.Cleanup(func() { ln.Close() })
	r := &attackRelay{addr: ln.Addr().String(), away: away, conns: map[net.Conn]struct{}{},
		hears: map[net.Conn]struct{}{}}
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go r.serve(nc, server.Addr())
		}
	}()
	return r
}

func (r *attackRelay) serve(client net.Conn, addr string) {
	defer client.Close()
	up, err := virtualnet.Dial(proxytest.Ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer up.Close()
	r.mu.Lock()
	r.conns[up] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.conns, up)
		delete(r.hears, up)
		r.mu.Unlock()
	}()
	var wg sync.WaitGroup
	marked := &sync.Map{} // of the rules that apply to this connection
	wg.Go(func() { r.pump(up, client, true, marked); up.(*virtualnet.Conn).CloseWrite() })
	wg.Go(func() { r.pump(client, up, false, marked); client.Close() })
	wg.Wait()
}

func (r *attackRelay) pump(to, from net.Conn, up bool, marked *sync.Map) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		if up && bytes.Contains(buf[:n], []byte("SUBSCRIBE")) {
			r.hears[to] = struct{}{}
		}
		rules := append([]*attackRule(nil), r.rules...)
		r.mu.Unlock()
		for _, rule := range rules {
			if up && bytes.Contains(buf[:n], []byte(rule.text)) {
				marked.Store(rule, true)
			}
			if _, ok := marked.Load(rule); !ok || rule.up != up {
				continue
			}
			rule.once.Do(func() { close(rule.met) })
			if rule.cut {
				to.Close()
				from.Close()
				return
			}
			<-rule.over
		}
		time.Sleep(r.away)
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// hold keeps back everything after a request that contains text until release: with up the request
// too, otherwise its reply. What is on its way when hold is called arrives before: it could share a
// connection with the request.
func (r *attackRelay) hold(t *testing.T, up bool, text string) (rule *attackRule, release func()) {
	synctest.Wait()
	rule = &attackRule{up: up, text: text, met: make(chan struct{}), over: make(chan struct{})}
	r.add(rule)
	release = sync.OnceFunc(func() {
		r.mu.Lock()
		r.rules = nil
		r.mu.Unlock()
		close(rule.over)
	})
	t.Cleanup(release)
	return rule, release
}

func (r *attackRelay) add(rule *attackRule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules = append(r.rules, rule)
}
