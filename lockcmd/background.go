package lockcmd

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/slot"
)

// backgroundClients keeps a client of the upstream for each identity that something must be done for beside its own connection. In a cluster
// it is one for each part of the slots: what waits for a node that doesn't answer must not hold up the others' locks.
type backgroundClients struct {
	connect func(Identity) *redis.Client
	parts   uint16 // 1, unless the upstream is a cluster

	sending sync.WaitGroup // of the clients, and of those that are no longer used

	mu      sync.Mutex
	clients map[clientKey]*backgroundClient // guarded by mu
}

// clientKey is what a client is for.
type clientKey struct {
	as   Identity
	part uint16
}

// clusterParts is how many parts a cluster's slots have here: a master mostly has slots that follow one another.
const clusterParts = 16

type backgroundClient struct {
	batcher
	used time.Time
}

// maxIdentities bounds the clients, by each part; the one that was used least lately goes.
const maxIdentities = 256

func newBackgroundClients(connect func(Identity) *redis.Client, cluster bool) *backgroundClients {
	c := &backgroundClients{connect: connect, parts: 1, clients: map[clientKey]*backgroundClient{}}
	if cluster {
		c.parts = clusterParts
	}
	return c
}

// client is for what concerns no lock in particular.
func (c *backgroundClients) client(as Identity) *redis.Client {
	return c.clientFor(clientKey{as: as}).client
}

func (c *backgroundClients) clientFor(whom clientKey) *backgroundClient {
	c.mu.Lock()
	defer c.mu.Unlock()
	client := c.clients[whom]
	if client == nil {
		if len(c.clients) >= maxIdentities*int(c.parts) {
			c.dropOldestLocked()
		}
		client = &backgroundClient{batcher: batcher{client: c.connect(whom.as), sending: &c.sending}}
		c.clients[whom] = client
	}
	client.used = time.Now()
	return client
}

func (c *backgroundClients) dropOldestLocked() {
	var oldest clientKey
	var since time.Time
	for whom, client := range c.clients {
		if since.IsZero() || client.used.Before(since) {
			oldest, since = whom, client.used
		}
	}
	c.clients[oldest].client.Close()
	delete(c.clients, oldest)
}

// close ends the clients, and what they have in flight. Nothing may be asked of them any more.
func (c *backgroundClients) close() {
	c.mu.Lock()
	for whom, client := range c.clients {
		client.client.Close()
		delete(c.clients, whom)
	}
	c.mu.Unlock()
	c.sending.Wait()
}

// on returns where scripts on a lock run as an identity. A reply that comes after until is of no use.
func (c *backgroundClients) on(ctx context.Context, as Identity, key string, until time.Time) evaluator {
	whom := clientKey{as: as}
	if c.parts > 1 {
		whom.part = slotOf([]byte(key)) / (slot.Count / c.parts)
	}
	return &backgroundEvaluator{ctx: ctx, on: c.clientFor(whom), cluster: c.parts > 1, until: until}
}

type backgroundEvaluator struct {
	ctx     context.Context
	on      *backgroundClient
	cluster bool
	until   time.Time
}

// Eval implements evaluator: it runs a script with others, and returns when its answer has come, or
// isn't waited for any longer.
func (e *backgroundEvaluator) Eval(c *Call) (Answer, error) {
	if e.cluster && c.Confirm.Min > 0 {
		return e.evalThenWait(c)
	}
	q := &queuedCall{Call: c, until: e.until.Add(c.Confirm.Within), done: make(chan struct{})}
	e.on.submit(q)
	timer := time.NewTimer(time.Until(q.until))
	defer timer.Stop()
	select {
	case <-q.done:
		return q.answer, q.err
	case <-timer.C:
		return Answer{}, errTooLate
	case <-e.ctx.Done():
		return Answer{}, e.ctx.Err()
	}
}

// evalThenWait has replicas confirm in a cluster: only when the script has been answered is it known
// which node has written.
func (e *backgroundEvaluator) evalThenWait(c *Call) (a Answer, err error) {
	ctx, cancel := context.WithTimeout(e.ctx, min(time.Until(e.until), backgroundTimeout)+c.Confirm.Within)
	defer cancel()
	conn := e.on.client.Conn()
	defer conn.Close()
	words := c.evalArgs()
	got := conn.Do(ctx, append([]any{"EVALSHA", c.Script.SHA}, words...)...)
	if redis.HasErrorPrefix(got.Err(), "NOSCRIPT") {
		got = conn.Do(ctx, append([]any{"EVAL", c.Script.Source}, words...)...)
	}
	if a.Value, err = replyValue(got.Result()); err != nil || a.IsError() {
		return a, err
	}
	a.Confirmed, err = replyValue(conn.Do(ctx, WaitAtKey, c.Keys[0], c.Confirm.Min, c.Confirm.Within.Milliseconds()).Result())
	return a, err
}
