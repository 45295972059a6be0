//go:build faults

package faults_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/faults/client"
	processes "lockproxy/internal/faults/process"
	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
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
			"--handover", filepath.Join(t.TempDir(), "handover"))
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
		heir, err := proxies[i].Replace(proxytest.Ctx, 12*time.Second)
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
			"sent elsewhere; none failed",
		restarts, r.commands.Load(), r.locks.Load(), r.ended.Load(), r.elsewhere.Load())
}

// rolling is what the clients share.
type rolling struct {
	t                                 *testing.T
	addrs                             []string
	commands, locks, ended, elsewhere atomic.Int64
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
		pause := time.Duration(c.random.Int64N(int64(20 * time.Millisecond)))
		if c.random.IntN(50) == 0 { // a drain finds it idle
			pause = time.Duration(c.random.Int64N(int64(2 * time.Second)))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
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
		if c.nc, err = net.Dial("tcp", c.addrs[c.random.IntN(len(c.addrs))]); err != nil {
			c.t.Errorf("client %d can't connect: %v", c.id, err)
			return false
		}
		c.conn = client.On(c.nc)
	}
	return true
}

// ask sends commands in one write and returns their answers; none if that fails.
func (c *rollingClient) ask(commands ...string) (answers []client.Reply) {
	if !c.ready() {
		return nil
	}
	return c.askOn(commands...)
}

// askOn is ask on the current connection.
func (c *rollingClient) askOn(commands ...string) (answers []client.Reply) {
	var raw []byte
	for _, command := range commands {
		raw = client.Append(raw, strings.Fields(command)...)
	}
	err := c.conn.Write(raw)
	for range commands {
		var r client.Reply
		if err == nil {
			r, err = c.conn.Receive(15 * time.Second)
		}
		if err != nil || r.Error() && !strings.HasPrefix(r.Text, "TRYAGAIN ") {
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
	c.counts++
	if got := c.ask(fmt.Sprint("INCR count:", c.id)); got != nil && got[0].Int != int64(c.counts) {
		c.t.Errorf("client %d has counted to %d, and is answered %v", c.id, c.counts, got[0])
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
	got := c.ask("LOCK " + key + " 8 WAIT 10")
	if got == nil {
		return
	}
	if got[0].Error() {
		c.elsewhere.Add(1)
		return
	}
	if got[0].Int == 0 {
		c.t.Errorf("client %d waited for 10 s and got nothing", c.id)
		return
	}
	if c.inside[n].Add(1) != 1 {
		c.t.Errorf("client %d holds %s, and so does another", c.id, key)
	}
	time.Sleep(time.Duration(c.random.Int64N(int64(5 * time.Millisecond))))
	c.inside[n].Add(-1)
	if got := c.askOn("UNLOCK " + key); got != nil && got[0].Int != 1 {
		c.t.Errorf("client %d: UNLOCK: %v", c.id, got[0])
	}
	c.locks.Add(1)
}

// Requests can cross with the end of a connection. Clients that send one command
// after another, with pauses or without, lose none, in as many ends as are tried:
// LOCKPROXY_TEST_DRAINS, with 400 clients each. Clients that send without waiting
// for replies do: those commands are not run, and not answered.
func TestPromisedRequestsThatCrossADrain(t *testing.T) {
	t.Parallel()
	drains := 2
	if text := os.Getenv("LOCKPROXY_TEST_DRAINS"); text != "" {
		drains, _ = strconv.Atoi(text)
	}
	server := testredis.Start(t)
	direct := proxytest.GoRedis(t, server.Addr())
	var total crossings
	for range drains {
		total.add(crossOneDrain(t, server.URL(), direct))
	}
	t.Logf(
		"of %d ends of connections of clients that ask one thing after another, %d crossed with "+
			"a command; of %d of clients that pause, %d; of %d of clients that "+
			"send without waiting, %d, which lost %d commands, none of which was run",
		total.ends[0], total.crossed[0], total.ends[1], total.crossed[1],
		total.ends[2], total.crossed[2], total.lost)
	if total.crossed[0] > 0 {
		t.Errorf("%d clients that ask one thing after another lost a command", total.crossed[0])
	}
	if total.crossed[1] > 1+total.ends[1]/1000 {
		t.Errorf("%d clients that pause lost a command", total.crossed[1])
	}
}

// crossings counts, of three kinds of clients, how many
// connections ended, and how many commands with them.
type crossings struct {
	ends, crossed [3]int
	lost          int
}

func (x *crossings) add(y crossings) {
	for i := range x.ends {
		x.ends[i] += y.ends[i]
		x.crossed[i] += y.crossed[i]
	}
	x.lost += y.lost
}

func crossOneDrain(t *testing.T, url string, direct *redis.Client) (x crossings) {
	p := proxytest.Start(t, url, nil)
	var mu sync.Mutex
	var running sync.WaitGroup
	for i := range 400 {
		nc, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		kind := 0
		if i%8 == 7 {
			kind = 2
		} else if i%2 == 1 {
			kind = 1
		}
		running.Go(func() {
			defer nc.Close()
			lost := 0
			if kind == 2 {
				lost = sendWithoutWaiting(t, direct, nc)
			} else {
				lost = askOneByOne(t, nc, time.Duration(kind)*1500*time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			x.ends[kind]++
			x.lost += lost
			if lost > 0 {
				x.crossed[kind]++
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	wait := proxytest.Shutdown(proxytest.Ctx, t, p)
	if err := wait(); err != nil {
		t.Error(err)
	}
	running.Wait()
	return x
}

// askOneByOne asks until the connection has ended, and
// returns how many commands were not answered: one or none.
func askOneByOne(t *testing.T, nc net.Conn, pause time.Duration) (lost int) {
	answer := make([]byte, 7)
	for !proxytest.KnowsEnd(t, nc) {
		nc.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := nc.Write([]byte("PING\r\n")); err != nil {
			return 1
		}
		if _, err := io.ReadFull(nc, answer); err != nil {
			return 1
		}
		if pause > 0 {
			time.Sleep(rand.N(pause))
		}
	}
	return 0
}

// crossingKeys numbers the keys of the counting clients.
var crossingKeys atomic.Int64

// sendWithoutWaiting counts in redis without waiting for answers, and returns how many commands
// were not answered. Exactly the answered ones have been run.
func sendWithoutWaiting(t *testing.T, direct *redis.Client, nc net.Conn) (lost int) {
	key := fmt.Sprint("crossing:", crossingKeys.Add(1))
	answered := 0
	ended := make(chan struct{})
	go func() { // ends with the connection; waited for below
		defer close(ended)
		for in := bufio.NewReader(nc); ; answered++ {
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
		}
	}()
	sent := 0
	for open := true; open; {
		if _, err := nc.Write([]byte("INCR " + key + "\r\n")); err != nil {
			break
		}
		sent++
		select {
		case <-ended:
			open = false
		case <-time.After(time.Millisecond):
		}
	}
	nc.Close()
	<-ended
	if run, err := direct.Get(proxytest.Ctx, key).Int(); err != nil || run != answered {
		t.Errorf("of %d commands %d were run and %d answered, %v", sent, run, answered, err)
	}
	return sent - answered
}
