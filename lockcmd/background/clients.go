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
	clients map[clientKey]*oneClient      // guarded by mu
	silent  map[*redis.Client]*time.Timer // guarded by mu; replaced by others, and soon closed
}

// clientKey is the user and the part of the slots of a background client. The questions of
// queues have a client of their own, so that nothing else delays them.
type clientKey struct {
	as     names.Identity
	part   uint16
	queues bool
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
		clients: map[clientKey]*oneClient{}, silent: map[*redis.Client]*time.Timer{}}
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
	return c.clientFor(clientKey{as: as, part: c.PartOf(key)}).client
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
	for client, end := range c.silent {
		end.Stop()
		client.Close()
		delete(c.silent, client)
	}
	c.mu.Unlock()
	c.sending.Wait()
}

// On returns where scripts on a lock run as an identity. Nobody wants a reply after until.
func (c *Clients) On(
	ctx context.Context, as names.Identity, lock string, until time.Time,
) *OnClient {
	return c.on(ctx, clientKey{as: as, part: c.PartOf(lock)}, until)
}

// ForQueue is On for the questions that a queue asks for a waiter.
func (c *Clients) ForQueue(
	ctx context.Context, as names.Identity, lock string, until time.Time,
) *OnClient {
	return c.on(ctx, clientKey{as, c.PartOf(lock), true}, until)
}

func (c *Clients) on(ctx context.Context, key clientKey, until time.Time) *OnClient {
	on := c.clientFor(key)
	return &OnClient{ctx: ctx, of: c, key: key, on: on, Until: until, Opens: on.opens()}
}

// PartOf is the part of the slots in which a key or a channel is.
func (c *Clients) PartOf(key string) uint16 {
	if c.parts == 1 {
		return 0
	}
	return keyname.SlotOf([]byte(key)) / (slot.Count / c.parts)
}

// OnClient is where scripts on a lock run as an identity.
type OnClient struct {
	ctx   context.Context
	of    *Clients
	key   clientKey
	on    *oneClient
	Until time.Time       // nobody wants a reply after it
	Opens bool            // a connection may have to be opened: none is open and free
	Stop  <-chan struct{} // closed when nobody needs an answer any more: then Eval is stopped
}

// Get asks for the value of a key, and returns the reply as the upstream sends it.
func (e *OnClient) Get(key string) (raw []byte, err error) {
	loopguard.MayWait()
	ctx, cancel := context.WithDeadline(e.ctx, e.Until)
	defer cancel()
	v, err := replyValue(e.on.client.Do(ctx, "GET", key).Result())
	return resp.AppendValue(nil, v, 2), err
}

// Renew makes later scripts use new connections: one of those that are open was silent, or lost.
func (e *OnClient) Renew() {
	c := e.of
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clients[e.key] != e.on { // it has been done, or c is closed
		return
	}
	delete(c.clients, e.key)
	silent := e.on.client
	c.silent[silent] = time.AfterFunc(c.Patience(), func() { // others may be under way on it
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.silent, silent)
		silent.Close()
	})
}

// Eval runs a script in a batch, and returns with the answer, or at Until. It fails if there is no
// answer, or if the confirmation has none.
func (e *OnClient) Eval(c *script.Call) (script.Answer, error) {
	loopguard.MayWait()
	if c.Confirm.Needed() && (e.on.cluster || c.GivesLocks()) {
		return e.evalThenWait(c)
	}
	q := &queuedCall{Call: c, until: e.Until.Add(c.Confirm.Within), done: make(chan struct{})}
	e.on.submit(q)
	timer := time.NewTimer(time.Until(q.until))
	defer timer.Stop()
	select {
	case <-q.done:
		return q.answer, q.err
	case <-timer.C:
		return script.Answer{}, UnfinishedError{q, false}
	case <-e.Stop:
		return script.Answer{}, UnfinishedError{q, true}
	case <-e.ctx.Done():
		return script.Answer{}, e.ctx.Err()
	}
}

// evalThenWait has a script confirmed, if its answer says that it has given anything. In a cluster
// only that shows, too, which node has written.
func (e *OnClient) evalThenWait(c *script.Call) (a script.Answer, err error) {
	timeout := min(time.Until(e.Until), e.on.patienceFor(c, e.Until))
	ctx, cancel := context.WithTimeout(e.ctx, timeout)
	defer cancel()
	conn := e.on.client.Conn()
	defer conn.Close()
	got := conn.Do(ctx, anys(c.AppendWords(nil, false))...)
	if redis.HasErrorPrefix(got.Err(), "NOSCRIPT") {
		got = conn.Do(ctx, anys(c.AppendWords(nil, true))...)
	}
	a.Value, err = replyValue(got.Result())
	if err != nil || !c.Confirms(a) {
		return a, err
	}
	confirming, end := context.WithTimeout(e.ctx, timeout+c.Confirm.Within)
	defer end()
	began := time.Now()
	for ask := c.ConfirmRequest(e.on.cluster); ask != nil && err == nil; {
		a.Confirmed, err = replyValue(conn.Do(confirming, anys(ask)...).Result())
		ask = c.ConfirmAgain(e.on.cluster, a, time.Since(began))
	}
	return a, err
}

// Ask runs a script that needs no replicas, and returns its reply.
func (bg *Jobs) Ask(
	on *OnClient, of *script.Script, key string, args ...string,
) (resp.Value, error) {
	c := bg.Scripts.Call(of, key, script.NoFastPath, "", args...)
	a, err := on.Eval(&c)
	return a.Value, a.Failure(err)
}
