//go:build faults

package faults_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockproxy/internal/test/faults/client"
	processes "lockproxy/internal/test/faults/process"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// Two proxies are replaced in turn under load, each by a process that takes over its socket: no
// command fails, none is done twice, and no lock is held twice. That is for clients that check
// whether their connection has ended before they send, and for waiters that ask again when told to.
func TestPromisedNoFailedCommandAcrossRollingRestarts(t *testing.T) {
	t.Parallel()
	store, err := processes.StartRedis(proxytest.Ctx, t.TempDir(), processes.None, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Kill)
	var proxies [2]*processes.Proxy
	for i := range proxies {
		proxies[i], err = processes.StartProxy(proxytest.Ctx, builtPrograms(t).Proxy, store.Addr,
			"--handover", filepath.Join(t.TempDir(), "handover"), "--shutdown-timeout", "10m")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { proxies[i].Kill() })
	}
	r := &rolling{t: t, addrs: []string{proxies[0].Addr, proxies[1].Addr}}
	working, stop := context.WithCancel(proxytest.Ctx)
	var clients sync.WaitGroup
	for i := range 60 {
		work := []func(*rollingClient){(*rollingClient).count, (*rollingClient).lock,
			(*rollingClient).trade, (*rollingClient).batch}[i%4]
		clients.Go(func() { r.client(working, i, work) })
	}
	restarts := 0
	enough := func() bool {
		return restarts >= 4 && r.ended.Load() >= 100 && r.elsewhere.Load() > 0 &&
			r.locks.Load() >= 100
	}
	for ; !enough() && !t.Failed(); restarts++ {
		i := restarts % 2
		heir, err := proxies[i].Replace(proxytest.Ctx, testwait.Patience)
		if text := proxies[i].Alarms(); text != "" {
			t.Errorf("the replaced process printed:\n%s", text)
		}
		old := proxies[i]
		proxies[i] = heir
		if err != nil {
			old.Kill()
			t.Fatal(err)
		}
	}
	stop()
	clients.Wait()
	t.Logf(
		"%d restarts: %d commands, %d locks held, %d connections ended and replaced, %d waiters "+
			"sent elsewhere, %d commands after a second of silence; none failed",
		restarts, r.commands.Load(), r.locks.Load(), r.ended.Load(), r.elsewhere.Load(),
		r.late.Load())
}

// rolling is what the clients share.
type rolling struct {
	t                                       *testing.T
	addrs                                   []string
	commands, locks, ended, elsewhere, late atomic.Int64
	// how many clients believe they hold each lock
	inside [3]atomic.Int64
}

// rollingClient is one of the clients.
type rollingClient struct {
	*rolling
	ctx    context.Context
	id     int
	random *rand.Rand
	nc     net.Conn
	conn   *client.Conn
	last   time.Time // when it sent something, or began to connect
	counts int
}

func (r *rolling) client(ctx context.Context, id int, work func(*rollingClient)) {
	c := &rollingClient{rolling: r, ctx: ctx, id: id, random: rand.New(rand.NewPCG(1, uint64(id)))}
	defer func() {
		if c.nc != nil {
			c.nc.Close()
		}
	}()
	for ctx.Err() == nil && !r.t.Failed() {
		work(c)
		if c.nc != nil && c.random.IntN(100) == 0 {
			c.idle()
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(c.random.Int64N(int64(20 * time.Millisecond)))):
		}
	}
}

// idle sends nothing until a drain has ended the connection.
func (c *rollingClient) idle() {
	stop := context.AfterFunc(c.ctx, func() { c.nc.(*net.TCPConn).CloseRead() })
	defer stop()
	if n, err := c.nc.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		c.t.Errorf("an idle client is told %d bytes, %v", n, err)
	}
}

// ready makes sure of a connection that has not ended.
func (c *rollingClient) ready() bool {
	if c.nc != nil && proxytest.KnowsEnd(c.t, c.nc) {
		c.nc.Close()
		c.nc = nil
		c.ended.Add(1)
	}
	if c.nc == nil {
		var err error
		c.last = time.Now()
		if c.nc, err = net.Dial("tcp", c.addrs[c.random.IntN(len(c.addrs))]); err != nil {
			c.t.Errorf("client %d can't connect: %v", c.id, err)
			return false
		}
		c.conn = client.On(c.nc)
	}
	return true
}

// idleDrain is how long a client can send nothing during a drain before it is closed. What it
// sends at that very moment is not run: see docs/guarantees.md. A machine that stops for that long
// between the look at the connection and the write makes any client such a one.
const idleDrain = time.Second

// ask sends commands in one write and returns their answers; none if that fails, or if none was run
// since the client was silent for too long.
func (c *rollingClient) ask(commands ...string) (answers []client.Reply) {
	if !c.ready() {
		return nil
	}
	last := c.last
	return c.exchange(func() bool { return c.last.Sub(last) >= idleDrain }, commands)
}

// askOn is ask on the current connection, which is not between two commands, or has a lock.
func (c *rollingClient) askOn(commands ...string) (answers []client.Reply) {
	return c.exchange(func() bool { return false }, commands)
}

func (c *rollingClient) exchange(late func() bool, commands []string) (answers []client.Reply) {
	var raw []byte
	for _, command := range commands {
		raw = wire.Append(raw, strings.Fields(command)...)
	}
	err := c.conn.Write(raw)
	c.last = time.Now()
	for range commands {
		var r client.Reply
		if err == nil {
			r, err = c.conn.Receive(testwait.Patience)
		}
		if err != nil && !proxytest.IsTimeout(err) && answers == nil && late() {
			c.late.Add(1)
			c.nc.Close()
			c.nc = nil
			return nil
		}
		if err != nil || r.IsError() && !strings.HasPrefix(r.Text, "TRYAGAIN ") {
			c.t.Errorf("client %d: %q: %q, %v", c.id, commands, r.Text, err)
			return nil
		}
		answers = append(answers, r)
	}
	c.commands.Add(int64(len(commands)))
	return answers
}

// count increments a number that no other client uses, and checks it.
func (c *rollingClient) count() {
	for _, got := range c.ask(fmt.Sprint("INCR count:", c.id)) {
		c.counts++
		if got.Int != int64(c.counts) {
			c.t.Errorf("client %d has counted to %d, and is answered %v", c.id, c.counts, got)
		}
	}
}

// batch counts several times in one write.
func (c *rollingClient) batch() {
	n := 1 + c.random.IntN(30)
	var commands []string
	for range n {
		commands = append(commands, fmt.Sprint("INCR count:", c.id))
	}
	for _, got := range c.ask(commands...) {
		c.counts++
		if got.Int != int64(c.counts) {
			c.t.Errorf("client %d has counted to %d, and is answered %v", c.id, c.counts, got)
		}
	}
}

// trade counts in a transaction, command by command.
func (c *rollingClient) trade() {
	if c.ask("MULTI") == nil || c.askOn(fmt.Sprint("INCR count:", c.id)) == nil {
		return
	}
	c.counts++
	if got := c.askOn("EXEC"); got != nil && got[0].String() != "[:"+strconv.Itoa(c.counts)+"]" {
		c.t.Errorf("client %d has counted to %d, and EXEC answers %v", c.id, c.counts, got[0])
	}
}

// lock waits for a lock, holds it for a moment, and releases it without a token.
func (c *rollingClient) lock() {
	n := c.random.IntN(len(c.inside))
	key := fmt.Sprint("job:", n)
	got := c.ask("LOCK " + key + " 600 WAIT 0")
	if got == nil {
		return
	}
	if got[0].IsError() {
		c.elsewhere.Add(1)
		return
	}
	if got[0].Int == 0 {
		c.t.Errorf("client %d waited and got nothing", c.id)
		return
	}
	if c.inside[n].Add(1) != 1 {
		c.t.Errorf("client %d holds %s, and so does another", c.id, key)
	}
	for range c.random.IntN(5) {
		c.askOn("PING")
	}
	c.inside[n].Add(-1)
	if got := c.askOn("UNLOCK " + key); got != nil && got[0].Int != 1 {
		c.t.Errorf("client %d: UNLOCK: %v", c.id, got[0])
	}
	c.locks.Add(1)
}
