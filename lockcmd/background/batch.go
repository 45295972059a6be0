package background

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/script"
)

// Background scripts that are due at the same time, such as renewals of many session locks, go to
// the upstream together: one round trip and one deadline for a batch, however far the upstream is.

const (
	// maxBatch bounds the scripts of a batch.
	maxBatch = 512
	// maxInFlight bounds the unanswered batches of one client, and so its connections. While one is
	// unanswered, another is sent only if it is full or longInFlight has passed: waiting for a
	// connection is mostly faster than opening another. One that may take a lock waits only for
	// shortInFlight, however many are unanswered: their connections can be stuck.
	maxInFlight   = 3
	longInFlight  = 500 * time.Millisecond
	shortInFlight = 5 * time.Millisecond
	// maxQueued bounds the scripts of one client that are not sent yet.
	maxQueued = 8192
)

// queuedCall is a Call that waits to be sent, or for its answer.
type queuedCall struct {
	*script.Call
	until time.Time // no client needs an answer after it

	done   chan struct{} // closed when the following are set
	answer script.Answer
	err    error
}

// UnfinishedError is why Eval has not waited for an answer: it was too late, or Stopped.
type UnfinishedError struct {
	*queuedCall
	Stopped bool
}

func (UnfinishedError) Error() string { return ErrTooLate.Error() }

// Done is closed when there is an answer, or none will come.
func (e UnfinishedError) Done() <-chan struct{} { return e.done }

// Answer is the answer that has come, once Done is closed.
func (e UnfinishedError) Answer() (script.Answer, error) { return e.answer, e.err }

func (c *queuedCall) finish(a script.Answer, err error) {
	c.answer, c.err = a, err
	close(c.done)
}

var (
	errQueueFull = errors.New("too many scripts wait to be sent to the upstream: " +
		"this one was not sent")
	ErrTooLate = errors.New("the upstream has not answered in time")
)

// batcher sends the scripts of one client.
type batcher struct {
	client  *redis.Client
	cluster bool            // the upstream is one
	sending *sync.WaitGroup // its goroutines; Clients.close waits for them
	// patience is how long the upstream may take to answer.
	patience func() time.Duration

	mu       sync.Mutex
	queue    []*queuedCall // guarded by mu
	inFlight int           // guarded by mu
	sent     time.Time     // guarded by mu; when the last batch was
	late     bool          // guarded by mu; sendLate is under way
}

// patienceFor is how long the answer to a script is waited for. Nobody asks again for a lock before
// the time after which the script gives none: until.
func (b *batcher) patienceFor(c *script.Call, until time.Time) time.Duration {
	if c.GivesLocks() {
		return max(b.patience(), time.Until(until))
	}
	return b.patience()
}

// opens reports whether what is sent now may have to wait for a connection that is opened.
func (b *batcher) opens() bool { return b.client.PoolStats().IdleConns == 0 }

// submit queues c for the next batch. c.done is closed soon after c.until, at the latest.
func (b *batcher) submit(c *queuedCall) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) >= maxQueued {
		c.finish(script.Answer{}, errQueueFull)
		return
	}
	b.queue = append(b.queue, c)
	since, gives := time.Since(b.sent), c.GivesLocks()
	due := len(b.queue) >= maxBatch || since > longInFlight
	switch {
	case b.inFlight == 0, b.inFlight < maxInFlight && due, gives && since > shortInFlight:
		b.sent = time.Now()
		b.inFlight++
		b.sending.Go(b.sendBatches) // ends with the queue, or its client
	case gives && !b.late:
		b.late = true
		b.sending.Go(b.sendLate) // as above
	}
}

// sendLate sends what is queued shortInFlight from now, if anything is then.
func (b *batcher) sendLate() {
	loopguard.MayWait()
	time.Sleep(shortInFlight)
	b.mu.Lock()
	b.late = false
	b.inFlight++
	b.mu.Unlock()
	b.sendBatches()
}

// sendBatches sends batches until the queue is empty.
func (b *batcher) sendBatches() {
	for batch := b.next(); len(batch) > 0; batch = b.next() {
		known := map[*script.Script]bool{}
		// EVALSHA for all; then the source of each script that the upstream does not know, once;
		// then the source for each call, since each node of a cluster knows its scripts alone.
		for _, withSource := range []func(*script.Script) bool{
			func(*script.Script) bool { return false },
			func(s *script.Script) bool { first := !known[s]; known[s] = true; return first },
			func(*script.Script) bool { return true },
		} {
			if batch = b.send(batch, withSource); len(batch) == 0 {
				break
			}
		}
	}
}

// next removes the next batch from the queue. If there is none, the calling goroutine must end: it
// is no longer counted.
func (b *batcher) next() (batch []*queuedCall) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for len(b.queue) > 0 && len(batch) < maxBatch {
		c := b.queue[0]
		switch {
		case now.After(c.until):
			c.finish(script.Answer{}, ErrTooLate)
		case len(batch) > 0 && c.Confirm != batch[0].Confirm: // a batch has one
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

// send sends a batch, some scripts with their sources, others by their hashes, and finishes the
// calls. It returns the calls that have not run: the upstream does not know their scripts.
func (b *batcher) send(
	batch []*queuedCall, withSource func(*script.Script) bool,
) (unknown []*queuedCall) {
	// Sending many takes time on a narrow link.
	confirm, timeout := batch[0].Confirm, time.Duration(0)
	for _, c := range batch {
		timeout = max(timeout, b.patienceFor(c.Call, c.until))
	}
	timeout += time.Duration(len(batch))*time.Millisecond + confirm.Within
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	pipe := b.client.Pipeline()
	replies := make([]*redis.Cmd, len(batch))
	for i, c := range batch {
		bySource := withSource(c.Script)
		if bySource {
			for _, other := range c.Script.Together(b.cluster) {
				// The user may lack the right.
				pipe.Do(ctx, anys(other.LoadRequest(b.cluster, c.Keys[0]))...)
			}
		}
		replies[i] = pipe.Do(ctx, anys(c.AppendWords(nil, bySource))...)
	}
	var wait *redis.Cmd // for all of them: it counts the connection's last write
	if confirm.Needed() {
		wait = pipe.Do(ctx, anys(batch[0].ConfirmRequest(false))...)
	}
	pipe.Exec(ctx) // each command has its own error
	for i, c := range batch {
		if redis.HasErrorPrefix(replies[i].Err(), "NOSCRIPT") {
			unknown = append(unknown, c)
			continue
		}
		var a script.Answer
		var err error
		a.Value, err = replyValue(replies[i].Result())
		if wait != nil && err == nil && !a.IsError() {
			a.Confirmed, err = replyValue(wait.Result())
		}
		c.finish(a, err)
	}
	return unknown
}

// nearPatience bounds one step on a background client of a near upstream: see patience.
const nearPatience = 2 * time.Second

// replyValue makes a reply of what go-redis returns for a command.
func replyValue(got any, err error) (resp.Value, error) {
	var reply redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		return resp.Null, nil
	case errors.As(err, &reply):
		return resp.Value{Type: '-', Text: []byte(strings.TrimSpace(reply.Error()))}, nil
	case err != nil:
		return resp.Value{}, fmt.Errorf("on a connection of the proxy's own: %w", err)
	}
	return scriptValue(got), nil
}

// scriptValue makes a reply of what go-redis returns for a script.
func scriptValue(got any) resp.Value {
	switch v := got.(type) {
	case int64:
		return resp.Int(v)
	case string:
		return resp.Bulk(v)
	case []any:
		list := resp.Array()
		for _, elem := range v {
			list.Elems = append(list.Elems, scriptValue(elem))
		}
		return list
	}
	return resp.Null
}

func anys(words []string) []any {
	list := make([]any, len(words))
	for i, word := range words {
		list[i] = word
	}
	return list
}
