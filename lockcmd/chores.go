package lockcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/resp"
)

// choreTimeout bounds one step on a connection of the proxy's own.
const choreTimeout = 2 * time.Second

// chores keeps a client of the upstream for each identity that something must be done for beside its own connection.
type chores struct {
	connect func(Identity) *redis.Client

	mu      sync.Mutex
	clients map[Identity]*choreClient // guarded by mu
}

type choreClient struct {
	*redis.Client
	used time.Time
}

// maxIdentities bounds the clients; the one that was used least lately goes.
const maxIdentities = 256

func newChores(connect func(Identity) *redis.Client) *chores {
	return &chores{connect: connect, clients: map[Identity]*choreClient{}}
}

func (c *chores) client(as Identity) *redis.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	client := c.clients[as]
	if client == nil {
		if len(c.clients) >= maxIdentities {
			c.dropOldestLocked()
		}
		client = &choreClient{Client: c.connect(as)}
		c.clients[as] = client
	}
	client.used = time.Now()
	return client.Client
}

func (c *chores) dropOldestLocked() {
	var oldest Identity
	var since time.Time
	for as, client := range c.clients {
		if since.IsZero() || client.used.Before(since) {
			oldest, since = as, client.used
		}
	}
	c.clients[oldest].Close()
	delete(c.clients, oldest)
}

func (c *chores) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for as, client := range c.clients {
		client.Close()
		delete(c.clients, as)
	}
}

// on returns where scripts run as an identity, each for no longer than timeout.
func (c *chores) on(ctx context.Context, as Identity, timeout time.Duration) evaluator {
	return &choreEvaluator{ctx: ctx, client: c.client(as), timeout: min(max(timeout, time.Millisecond), choreTimeout)}
}

type choreEvaluator struct {
	ctx     context.Context
	client  *redis.Client
	timeout time.Duration
}

// Eval runs a script by its hash, or if the upstream doesn't have it by its source.
func (e *choreEvaluator) Eval(script *Script, keys, args []string) (resp.Value, error) {
	ctx, cancel := context.WithTimeout(e.ctx, e.timeout)
	defer cancel()
	argv := make([]any, len(args))
	for i, arg := range args {
		argv[i] = arg
	}
	got, err := e.client.EvalSha(ctx, script.SHA, keys, argv...).Result()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		got, err = e.client.Eval(ctx, script.Source, keys, argv...).Result()
	}
	return choreValue(got, err)
}

// EvalConfirmed runs a script, and WAIT on the same connection.
func (e *choreEvaluator) EvalConfirmed(script *Script, keys, args []string, replicas int, timeout time.Duration) (v, wait resp.Value, err error) {
	ctx, cancel := context.WithTimeout(e.ctx, e.timeout+timeout)
	defer cancel()
	argv := make([]any, len(args))
	for i, arg := range args {
		argv[i] = arg
	}
	var got, acknowledged *redis.Cmd
	// Errors are each command's own.
	e.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		got = p.EvalSha(ctx, script.SHA, keys, argv...)
		acknowledged = p.Do(ctx, "WAIT", replicas, timeout.Milliseconds())
		return nil
	})
	if redis.HasErrorPrefix(got.Err(), "NOSCRIPT") {
		e.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			got = p.Eval(ctx, script.Source, keys, argv...)
			acknowledged = p.Do(ctx, "WAIT", replicas, timeout.Milliseconds())
			return nil
		})
	}
	if v, err = choreValue(got.Result()); err != nil || v.IsError() {
		return v, wait, err
	}
	wait, err = choreValue(acknowledged.Result())
	return v, wait, err
}

// choreValue turns what go-redis returns back into a reply.
func choreValue(got any, err error) (resp.Value, error) {
	var reply redis.Error
	switch {
	case errors.Is(err, redis.Nil):
		return resp.Value{Type: '_'}, nil
	case errors.As(err, &reply):
		return resp.Value{Type: '-', Text: []byte(strings.TrimSpace(reply.Error()))}, nil
	case err != nil:
		return resp.Value{}, fmt.Errorf("on a connection of the proxy's own: %w", err)
	}
	return asValue(got), nil
}

// asValue turns what go-redis makes of a script's reply back into one.
func asValue(got any) resp.Value {
	switch v := got.(type) {
	case int64:
		return resp.Value{Type: ':', Int: v}
	case string:
		return resp.Value{Type: '$', Text: []byte(v)}
	case []any:
		list := resp.Value{Type: '*'}
		for _, elem := range v {
			list.Elems = append(list.Elems, asValue(elem))
		}
		return list
	}
	return resp.Value{Type: '_'}
}
