//go:build faults

package faults_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockproxy/internal/faults/client"
	processes "lockproxy/internal/faults/process"
	"lockproxy/internal/faults/relay"
	"lockproxy/internal/proxytest"
)

// overloaded is how many clients there are, and greedy how
// many of them send much more than they read.
const (
	overloaded = 5000
	greedy     = 50
)

// There are 5,000 clients on two cores, a slow link to Redis, and some clients that don't read
// their replies. Each command is answered once, in order, with its own reply; the proxy's memory
// stays bounded; and when most have gone, the rest is served as before.
func TestOverload(t *testing.T) {
	path := proxytest.Binary(t)
	redis, err := processes.StartRedis(proxytest.Ctx, t.TempDir(), processes.None, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Kill)
	link, err := relay.New(redis.Addr, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	p, err := processes.StartProxy(proxytest.Ctx, path, link.Addr(), "--max-clients", "6000",
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
	time.Sleep(2 * time.Second)
	alone := o.latency()
	link.Set(relay.Link{Latency: 20 * time.Millisecond, Rate: 100_000})
	for i := range overloaded {
		if i < greedy {
			gone.Go(func() { o.greedyClient(many, 10_000+i) })
		} else {
			gone.Go(func() { o.client(many, 10_000+i) })
		}
	}
	var peak int64
	end := time.Now().Add(25 * time.Second)
	for ; time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		peak = max(peak, p.Memory())
	}
	atPeak := o.answered.Load()
	stopMany()
	gone.Wait()
	link.Set(relay.Link{})
	time.Sleep(2 * time.Second)
	o.latency()
	time.Sleep(3 * time.Second)
	after := o.latency()
	stopFew()
	stay.Wait()
	t.Logf(
		"%d commands answered, %d of them under overload; memory at most %d MB, in the end %d "+
			"MB; longest answer to the few: %v alone, %v afterwards; %d clients turned away",
		o.answered.Load(), atPeak, peak>>20, p.Memory()>>20, alone, after, o.refused.Load())
	if atPeak < 2*overloaded {
		t.Errorf("only %d commands were answered under overload", atPeak)
	}
	// Per client about 64 KB: buffers of both directions and two or three goroutines. A greedy one
	// fills its limit, no more.
	if limit := int64(overloaded*64<<10 + greedy*(1<<20)); peak > limit {
		t.Errorf("the proxy has used %d MB for %d clients: more than %d MB", peak>>20, overloaded,
			limit>>20)
	}
	if after > 500*time.Millisecond+5*alone {
		t.Errorf("after the load an answer took %v; alone it was %v", after, alone)
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
	slowest  atomic.Int64 // ns, of the few clients that are there from the beginning
}

// latency is the longest answer since its last call.
func (o *overload) latency() time.Duration { return time.Duration(o.slowest.Swap(0)) }

// connect makes a connection, and tries again as clients do: of 5,000 at once on a busy machine,
// the kernel turns some away at first.
func (o *overload) connect(ctx context.Context) *client.Conn {
	for range 3 {
		if c, err := client.Dial(o.addr); err == nil {
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
		start := time.Now()
		err := c.Write(client.Append(client.Append(nil, "RPUSH", list, value), "ECHO", value))
		for i := 0; i < 2 && err == nil; i++ {
			want := []string{fmt.Sprint(":", n/2+1), value}[i]
			var r client.Reply
			if r, err = c.Receive(40 * time.Second); err == nil && r.String() != want {
				o.t.Errorf("client %d: got %q, want %q", id, r, want)
				return
			}
			o.answered.Add(1)
		}
		if err != nil {
			o.t.Errorf("client %d: %v", id, err)
			return
		}
		if took := int64(time.Since(start)); id < 10_000 && took > o.slowest.Load() {
			o.slowest.Store(took)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// greedyClient sends as long as it can, reads nothing for a while, and then checks every answer.
func (o *overload) greedyClient(ctx context.Context, id int) {
	c := o.connect(ctx)
	if c == nil {
		return
	}
	defer c.Close()
	const commands = 2000
	var sending sync.WaitGroup
	sending.Go(func() {
		for n := range commands {
			if c.WriteSlowly(client.Append(nil, "ECHO", fmt.Sprintf("%d-%01000d", id, n))) != nil {
				return
			}
		}
	})
	select {
	case <-ctx.Done():
	case <-time.After(10 * time.Second):
	}
	for n := range commands {
		r, err := c.Receive(60 * time.Second)
		if want := fmt.Sprintf("%d-%01000d", id, n); err != nil || r.Text != want {
			if ctx.Err() == nil {
				o.t.Errorf("greedy client %d, command %d: got %.40q, %v", id, n, r.Text, err)
			}
			break
		}
		o.answered.Add(1)
		if ctx.Err() != nil && n%100 == 99 {
			break
		}
	}
	c.Close()
	sending.Wait()
}
