package background

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/internal/slot"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/script"
)

// Jobs runs jobs outside of sessions, at their times, and scripts on the proxy's own clients.
type Jobs struct {
	Scripts *script.Maker
	Log     hclog.Logger
	Clients *Clients
	Timers  *timers
}

// Clients keeps a client of the upstream for each identity, for scripts that do not run
// on a session's connection. In a cluster each part of the slots has one, so that a node that does
// not answer delays only the locks of its part.
type Clients struct {
	connect func(names.Identity) *redis.Client
	parts   uint16 // 1, unless the upstream is a cluster
	Ways    *Ways

	sending sync.WaitGroup // all batchers, also of dropped clients

	mu      sync.Mutex
	clients map[clientKey]*oneClient // guarded by mu
}

// clientKey is the user and the part of the slots of a background client.
type clientKey struct {
	as   names.Identity
	part uint16
}

type oneClient struct {
	batcher
	used time.Time
}

// maxIdentities bounds the clients of each part. The least recently used one is dropped.
const maxIdentities = 256

func NewClients(
	connect func(names.Identity) *redis.Client, cluster bool,
) *Clients {
	c := &Clients{connect: connect, parts: 1, Ways: &Ways{cluster: cluster},
		clients: map[clientKey]*oneClient{}}
	if cluster {
		c.parts = clusterParts
	}
	return c
}

// Patience bounds one step on a client: a connection may have to be opened first, which takes a few
// round trips.
func (c *Clients) Patience() time.Duration {
	return nearPatience + 4*c.Ways.Farthest()
}

// Client returns the client for commands that concern no single lock.
func (c *Clients) Client(as names.Identity) *redis.Client {
	return c.clientFor(clientKey{as: as}).client
}

// Near returns the client for commands at the node of a lock, or of a channel.
func (c *Clients) Near(as names.Identity, key string) *redis.Client {
	return c.clientFor(clientKey{as, c.PartOf(key)}).client
}

func (c *Clients) clientFor(key clientKey) *oneClient {
	c.mu.Lock()
	defer c.mu.Unlock()
	client := c.clients[key]
	if client == nil {
		if len(c.clients) >= maxIdentities*int(c.parts) {
			c.dropOldestLocked()
		}
		client = &oneClient{batcher: batcher{client: c.connect(key.as),
			cluster: c.parts > 1, sending: &c.sending, patience: c.Patience}}
		c.clients[key] = client
	}
	client.used = time.Now()
	return client
}

func (c *Clients) dropOldestLocked() {
	var oldest clientKey
	var since time.Time
	for key, client := range c.clients {
		if since.IsZero() || client.used.Before(since) {
			oldest, since = key, client.used
		}
	}
	c.clients[oldest].client.Close()
	delete(c.clients, oldest)
}

// Close ends the clients, and what they have in flight. They must not be used afterwards.
func (c *Clients) Close() {
	loopguard.MayWait()
	c.mu.Lock()
	for key, client := range c.clients {
		client.client.Close()
		delete(c.clients, key)
	}
	c.mu.Unlock()
	c.sending.Wait()
}

// On returns where scripts on a lock run as an identity. Nobody wants a reply after until.
func (c *Clients) On(
	ctx context.Context, as names.Identity, lock string, until time.Time,
) Evaluator {
	return &onClient{ctx, c.clientFor(clientKey{as, c.PartOf(lock)}), until}
}

// PartOf is the part of the slots in which a key or a channel is.
func (c *Clients) PartOf(key string) uint16 {
	if c.parts == 1 {
		return 0
	}
	return keyname.SlotOf([]byte(key)) / (slot.Count / c.parts)
}

type onClient struct {
	ctx   context.Context
	on    *oneClient
	until time.Time
}

// Eval implements evaluator: it runs a script in a batch, and returns with the answer, or at until.
func (e *onClient) Eval(c *script.Call) (script.Answer, error) {
	loopguard.MayWait()
	if e.on.cluster && c.Confirm.Needed() {
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
		return script.Answer{}, ErrTooLate
	case <-e.ctx.Done():
		return script.Answer{}, e.ctx.Err()
	}
}

// evalThenWait has a script confirmed in a cluster. Only its answer shows which node has written:
// WAIT cannot be sent with it.
func (e *onClient) evalThenWait(c *script.Call) (a script.Answer, err error) {
	timeout := min(time.Until(e.until), e.on.patience()) + c.Confirm.Within
	ctx, cancel := context.WithTimeout(e.ctx, timeout)
	defer cancel()
	conn := e.on.client.Conn()
	defer conn.Close()
	words := c.EvalArgs()
	got := conn.Do(ctx, append([]any{"EVALSHA", c.Script.SHA}, words...)...)
	if redis.HasErrorPrefix(got.Err(), "NOSCRIPT") {
		got = conn.Do(ctx, append([]any{"EVAL", c.Script.Source}, words...)...)
	}
	if a.Value, err = replyValue(got.Result()); err != nil || a.IsError() {
		return a, err
	}
	wait := conn.Do(ctx, anys(c.ConfirmRequest(true))...)
	a.Confirmed, err = replyValue(wait.Result())
	return a, err
}

// Evaluator is where scripts run: a session, or a background client. Eval waits for the answer. It
// fails if there is none, or if the confirmation has none.
type Evaluator interface {
	Eval(c *script.Call) (script.Answer, error)
}

// Ask runs a script that needs no replicas, and returns its reply.
func (bg *Jobs) Ask(
	on Evaluator, of *script.Script, key string, args ...string,
) (resp.Value, error) {
	c := bg.Scripts.Call(of, key, script.NoFastPath, "", args...)
	a, err := on.Eval(&c)
	return a.Value, a.Failure(err)
}
