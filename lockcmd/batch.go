package lockcmd

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/resp"
)

// Scripts of the proxy's own that are due at the same time, such as the renewals of many session locks, go to the upstream together:
// one round trip and one deadline for a batch, however far away the upstream is.

const (
	// maxBatch bounds how many scripts one batch has.
	maxBatch = 512
	// maxInFlight bounds the batches of one client that have been sent and not been answered, and so its connections. A further one is
	// sent only when it would be full, or the last has had no answer for long: a connection that there is beats one to be made.
	maxInFlight = 3
	// longInFlight is that time.
	longInFlight = 500 * time.Millisecond
	// maxQueued bounds the scripts of one client that wait to be sent.
	maxQueued = 8192
)

// call is one run of a script.
type call struct {
	script   *Script
	words    []any     // number of keys, keys, arguments
	until    time.Time // nobody wants the reply later
	replicas int       // how many must have what it wrote, by WAIT; 0 sends none
	within   time.Duration

	done                chan struct{} // closed when the following are set
	reply, acknowledged resp.Value    // acknowledged is WAIT's
	err                 error
}

func (c *call) finish(reply, acknowledged resp.Value, err error) {
	c.reply, c.acknowledged, c.err = reply, acknowledged, err
	close(c.done)
}

var (
	errQueueFull = errors.New("too many scripts wait to be sent to the upstream: this one was not sent")
	errTooLate   = errors.New("the upstream has not answered in time")
)

// batcher sends the scripts of one client.
type batcher struct {
	client  *redis.Client
	sending *sync.WaitGroup // its goroutines; chores.close waits for them

	mu       sync.Mutex
	queue    []*call   // guarded by mu
	inFlight int       // guarded by mu
	sent     time.Time // guarded by mu; when the last batch was
}

// submit has c sent with the next batch. c.done is closed soon after c.until, at the latest.
func (b *batcher) submit(c *call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) >= maxQueued {
		c.finish(resp.Value{}, resp.Value{}, errQueueFull)
		return
	}
	b.queue = append(b.queue, c)
	if b.inFlight == 0 || b.inFlight < maxInFlight && (len(b.queue) >= maxBatch || time.Since(b.sent) > longInFlight) {
		b.sent = time.Now()
		b.inFlight++
		b.sending.Go(b.run) // ends when the queue is empty; closing the client ends what is in flight
	}
}

// run sends batches until there is nothing to send.
func (b *batcher) run() {
	for batch := b.take(); len(batch) > 0; batch = b.take() {
		known := map[*Script]bool{}
		// EVALSHA for all; then the source of each script that the upstream doesn't know, once; then the source for each call, since
		// nodes of a cluster each have their own scripts.
		for _, withSource := range []func(*Script) bool{
			func(*Script) bool { return false },
			func(s *Script) bool { first := !known[s]; known[s] = true; return first },
			func(*Script) bool { return true },
		} {
			if batch = b.send(batch, withSource); len(batch) == 0 {
				break
			}
		}
	}
}

// take is the next batch; if there is none, the goroutine that asks is no longer counted.
func (b *batcher) take() (batch []*call) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for len(b.queue) > 0 && len(batch) < maxBatch {
		c := b.queue[0]
		switch {
		case now.After(c.until):
			c.finish(resp.Value{}, resp.Value{}, errTooLate)
		case len(batch) > 0 && c.replicas != batch[0].replicas: // it would wait for replicas that it has no use for
			return batch
		default:
			batch = append(batch, c)
		}
		b.queue[0], b.queue = nil, b.queue[1:]
	}
	b.sent = now
	if len(batch) == 0 {
		b.queue = nil
		b.inFlight--
	}
	return batch
}

// send sends a batch, some scripts with their sources and the others by their hashes, and finishes its calls, but for those whose
// scripts the upstream doesn't know: those are returned, and have not run.
func (b *batcher) send(batch []*call, withSource func(*Script) bool) (unknown []*call) {
	// Sending many takes time on a narrow link.
	timeout := choreTimeout + time.Duration(len(batch))*time.Millisecond + batch[0].within
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	pipe := b.client.Pipeline()
	replies := make([]*redis.Cmd, len(batch))
	for i, c := range batch {
		command, script := "EVALSHA", c.script.SHA
		if withSource(c.script) {
			command, script = "EVAL", c.script.Source
			if other := c.script.Together(); other != nil {
				pipe.Do(ctx, "SCRIPT", "LOAD", other.Source) // a user who may not is served all the same
			}
		}
		replies[i] = pipe.Do(ctx, append([]any{command, script}, c.words...)...)
	}
	var wait *redis.Cmd // for all of them: the connection's last write is the last of theirs
	if batch[0].replicas > 0 {
		wait = pipe.Do(ctx, "WAIT", batch[0].replicas, batch[0].within.Milliseconds())
	}
	pipe.Exec(ctx) // errors are each command's own
	for i, c := range batch {
		if redis.HasErrorPrefix(replies[i].Err(), "NOSCRIPT") {
			unknown = append(unknown, c)
			continue
		}
		reply, err := choreValue(replies[i].Result())
		acknowledged := resp.Value{}
		if wait != nil && err == nil && !reply.IsError() {
			acknowledged, err = choreValue(wait.Result())
		}
		c.finish(reply, acknowledged, err)
	}
	return unknown
}
