//go:build faults

package faults_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/faults/client"
	processes "lockproxy/internal/test/faults/process"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// overloaded is how many clients there are, and greedy how
// many of them send much more than they read.
const (
	overloaded = 1500
	greedy     = 50
)

// There are 1,500 clients, a slow link to Redis, and some clients that don't read their replies.
// Each command is answered once, in order, with its own reply; the proxy's memory stays bounded;
// and when most have disconnected, the rest is served.
func TestOverload(t *testing.T) {
	t.Parallel()
	path := proxytest.Binary(t)
	redis, err := processes.StartRedis(proxytest.Ctx, t.TempDir(), processes.None, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Kill)
	link, err := badlink.New(redis.Addr, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	p, err := processes.StartProxy(proxytest.Ctx, path, link.Addr(), "--max-clients", "2000",
		// on a busy machine the slow link takes more than the default of 5 s
		"--upstream-dial-timeout", "30s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)

	o := &overload{t: t, addr: p.Addr}
	few, stopFew := context.WithCancel(proxytest.Ctx)
	many, stopMany := context.WithCancel(proxytest.Ctx)
	var stay, gone sync.WaitGroup
	for i := range 20 {
		stay.Go(func() { o.client(few, i) })
	}
	o.serves(400)
	o.unread.Store(greedy)
	link.Set(badlink.State{Latency: 20 * time.Millisecond, Rate: 100_000})
	for i := range overloaded {
		if i < greedy {
			gone.Go(func() { o.greedyClient(many, 10_000+i) })
		} else {
			gone.Go(func() { o.client(many, 10_000+i) })
		}
	}
	var peak int64
	testwait.Until(t, "they are answered under overload", func() bool {
		peak = max(peak, p.Memory())
		return t.Failed() || o.answered.Load() >= 4*overloaded && o.unread.Load() == 0
	})
	stopMany()
	link.Set(badlink.State{}) // they read what they have asked for
	gone.Wait()
	o.serves(400)
	stopFew()
	stay.Wait()
	t.Logf("%d commands answered; memory at most %d MB, in the end %d MB; %d clients turned away",
		o.answered.Load(), peak>>20, p.Memory()>>20, o.refused.Load())
	// Per client about 64 KB: buffers of both directions and two or three goroutines. A greedy one
	// fills its limit, no more.
	if limit := int64(overloaded*64<<10 + greedy*(1<<20)); peak > limit {
		t.Errorf("the proxy has used %d MB for %d clients: more than %d MB", peak>>20, overloaded,
			limit>>20)
	}
	if o.refused.Load() > overloaded/50 {
		t.Errorf("%d clients were turned away", o.refused.Load())
	}
}

// overload is what the clients see.
type overload struct {
	t        *testing.T
	addr     string
	answered atomic.Int64
	refused  atomic.Int64
	unread   atomic.Int64 // greedy clients that have not read a few answers
}

// serves waits until so many commands more have been answered.
func (o *overload) serves(commands int64) {
	o.t.Helper()
	from := o.answered.Load()
	testwait.Until(o.t, "clients are served", func() bool {
		return o.t.Failed() || o.answered.Load() >= from+commands
	})
}

// connect makes a connection, and tries again as clients do: of so many at once on a busy machine,
// the kernel turns some away at first.
func (o *overload) connect(ctx context.Context) *client.Conn {
	for range 3 {
		if c, err := dial(o.addr); err == nil {
			return c
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	o.refused.Add(1)
	return nil
}

// client asks for unique values, in small batches, and checks each answer.
func (o *overload) client(ctx context.Context, id int) {
	c := o.connect(ctx)
	if c == nil {
		return
	}
	defer c.Close()
	list := fmt.Sprint("overload:", id)
	for n := 0; ctx.Err() == nil; n += 2 {
		value := fmt.Sprintf("%d-%d", id, n)
		err := c.WriteSlowly(wire.Append(wire.Append(nil, "RPUSH", list, value), "ECHO", value))
		for i := 0; i < 2 && err == nil; i++ {
			want := []string{fmt.Sprint(":", n/2+1), value}[i]
			var r client.Reply
			if r, err = c.Receive(testwait.Patience); err == nil && r.String() != want {
				o.t.Errorf("client %d: got %q, want %q", id, r, want)
				return
			}
			o.answered.Add(1)
		}
		if err != nil {
			o.t.Errorf("client %d: %v", id, err)
			return
		}
	}
}

// greedyClient sends as long as it can, reads nothing until others have been answered, and then
// checks every answer.
func (o *overload) greedyClient(ctx context.Context, id int) {
	c := o.connect(ctx)
	if c == nil {
		return
	}
	defer c.Close()
	const commands = 4000
	var sending sync.WaitGroup
	sending.Go(func() {
		for n := range commands {
			if c.WriteSlowly(wire.Append(nil, "ECHO", fmt.Sprintf("%d-%01000d", id, n))) != nil {
				return
			}
		}
	})
	testwait.Holds(func() bool { return ctx.Err() != nil || o.answered.Load() >= 2*overloaded })
	for n := range commands {
		r, err := c.Receive(testwait.Patience)
		if want := fmt.Sprintf("%d-%01000d", id, n); err != nil || r.Text != want {
			if ctx.Err() == nil {
				o.t.Errorf("greedy client %d, command %d: got %.40q, %v", id, n, r.Text, err)
			}
			break
		}
		o.answered.Add(1)
		if n == 20 {
			o.unread.Add(-1)
		}
		if ctx.Err() != nil && n%100 == 99 {
			break
		}
	}
	c.Close()
	sending.Wait()
}
