package hints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
)

// Tracking learns by CLIENT TRACKING that the key of a lock has changed: a foreign client has
// released it, or somebody has deleted or overwritten it. So a waiter need not poll often next to
// foreign clients, a lost message delays no client, and a session is told at once that its lock is
// gone.
//
// Each user and database that needs it has a connection. It reads keys by EXISTS, and the upstream
// reports the next change of each. If the upstream has no CLIENT TRACKING, or the user may not use
// it, waiters poll and sessions learn by their next renewals. In a cluster the connection goes to
// each node with such a key.
type Tracking struct {
	*background.Jobs
	queues   *queue.Queues
	sessions *held.Sessions

	mu      sync.Mutex
	conns   map[names.Identity]*trackingConn // guarded by mu
	refused map[names.Identity]time.Time     // guarded by mu; when it last failed
}

const (
	// maxTracking bounds the connections, and the users remembered as refused.
	maxTracking = 8
	// trackingRetry is how long after a failure the next connection is tried.
	trackingRetry = 30 * time.Second
	// maxTracked bounds the keys of one connection.
	maxTracked = 10000
	// trackingIdle is how long a connection without a waiter or session is kept, and a key that
	// concerns nobody.
	trackingIdle = 5 * time.Second
	// maxTrackingReply bounds a reply, bytes. A push names one key.
	maxTrackingReply = 1 << 20
	// maxTrackedName bounds a tracked key's name, bytes: a longer one is polled for.
	maxTrackedName = maxTrackingReply - 1<<10
	// maxKeptReply is how large a reply's buffer can be to be used again, bytes.
	maxKeptReply = 16 << 10
)

// trackingConn is one connection. A key is wanted until its EXISTS is answered, then tracked.
type trackingConn struct {
	by      *Tracking
	as      names.Identity
	mu      sync.Mutex
	wanted  []string              // guarded by mu; in order
	unsent  []byte                // guarded by mu; what is to be sent for the last of them
	tracked map[string]trackedKey // guarded by mu
	more    chan struct{}         // holds one: there is something to send
}

// trackedKey is a key that is wanted, or tracked. A push has a copy of its name, which does not
// replace the lock's own.
type trackedKey struct {
	name string
	now  bool // false while it is wanted
}

func NewTracking(qs *queue.Queues, s *held.Sessions) *Tracking {
	return &Tracking{
		Jobs: s.Jobs, queues: qs, sessions: s,
		conns: map[names.Identity]*trackingConn{}, refused: map[names.Identity]time.Time{},
	}
}

// Want asks the upstream to report the next change of a lock's key. It returns at once.
func (k *Tracking) Want(as names.Identity, key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.conns[as]
	if c == nil {
		if len(k.conns) >= maxTracking || time.Since(k.refused[as]) < trackingRetry {
			return
		}
		c = &trackingConn{by: k, as: as, tracked: map[string]trackedKey{},
			more: make(chan struct{}, 1)}
		k.conns[as] = c
		k.Timers.After(0, c.serve) // ends also with the connection, or when it isn't needed
	}
	c.want(key)
}

// Follows reports whether the upstream reports the next change of a lock's key, and whether it soon
// will.
func (k *Tracking) Follows(as names.Identity, key string) (now, soon bool) {
	k.mu.Lock()
	c := k.conns[as]
	k.mu.Unlock()
	if c == nil {
		return false, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	tracked, soon := c.tracked[key]
	return tracked.now, soon
}

func (c *trackingConn) want(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.tracked[key]; known || len(c.tracked) >= maxTracked ||
		len(key) > maxTrackedName {
		return
	}
	c.tracked[key] = trackedKey{name: key}
	c.wanted = append(c.wanted, key)
	c.unsent = resp.AppendCommand(c.unsent, "EXISTS", key)
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// serve opens the connection, and serves it until it ends.
func (c *trackingConn) serve(ctx context.Context) {
	loopguard.MayWait()
	k := c.by
	dialing, cancel := context.WithTimeout(ctx, k.Clients.Patience())
	conn, err := k.Clients.Client(c.as).Options().Dialer(dialing, "", "")
	cancel()
	if err == nil {
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		ended := make(chan struct{})
		var writing sync.WaitGroup
		writing.Go(func() { c.write(conn, ended) }) // ends with ended
		err = c.read(conn)
		close(ended)
		stop()
		conn.Close()
		writing.Wait()
	}
	k.mu.Lock()
	delete(k.conns, c.as)
	if err != nil {
		if len(k.refused) >= maxTracking {
			clear(k.refused)
		}
		k.refused[c.as] = time.Now()
	}
	k.mu.Unlock()
	c.lost()
	if err != nil && ctx.Err() == nil {
		k.Log.Debug("cannot track the keys of locks: waiters poll", "error", err)
	}
}

// lost makes those who relied on the connection poll.
func (c *trackingConn) lost() {
	c.mu.Lock()
	keys := slices.Collect(maps.Keys(c.tracked))
	c.mu.Unlock()
	for _, key := range keys {
		c.by.queues.Of(names.Lock{DB: c.as.DB, Key: key}).MayBeFree()
	}
}

// write asks for the wanted keys.
func (c *trackingConn) write(conn net.Conn, ended chan struct{}) {
	loopguard.MayWait()
	out := resp.AppendCommand(nil, "HELLO", "3")
	out = resp.AppendCommand(out, "CLIENT", "TRACKING", "ON")
	for {
		conn.SetWriteDeadline(time.Now().Add(c.by.Clients.Patience()))
		if _, err := conn.Write(out); err != nil {
			conn.Close() // the reader ends
			return
		}
		select {
		case <-ended:
			return
		case <-c.more:
		}
		c.mu.Lock()
		out, c.unsent = c.unsent, nil
		c.mu.Unlock()
	}
}

// read takes replies and pushes. Its error is nil if the connection is no longer needed.
func (c *trackingConn) read(conn net.Conn) error {
	var scan resp.Scanner
	buf, begun, setup := make([]byte, 4<<10), []byte(nil), 2
	for {
		conn.SetReadDeadline(time.Now().Add(trackingIdle))
		n, err := conn.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if setup > 0 || c.silent() {
				return errors.New("no answer")
			}
			if c.forgetUnneeded(); !c.by.queues.Waiting() && !c.by.sessions.AnySession() {
				return nil
			}
		case err == io.EOF && n == 0:
			return errors.New("closed by the upstream")
		case err != nil:
			return err
		}
		for data := buf[:n]; len(data) > 0; {
			used, done, err := scan.Scan(data)
			begun = append(begun, data[:used]...)
			data = data[used:]
			if err != nil {
				return err
			}
			if !done && len(begun) <= maxTrackingReply {
				break
			}
			v, err := resp.ParseValue(begun)
			if begun = begun[:0]; cap(begun) > maxKeptReply {
				begun = nil
			}
			switch {
			case err != nil:
				return err
			case v.IsError():
				return fmt.Errorf("refused: %s", v.Text)
			case v.Type == '>':
				c.changed(v)
			case setup > 0:
				setup--
			default:
				c.answered(v.Int == 0)
			}
		}
	}
}

// silent reports whether the upstream owes an answer.
func (c *trackingConn) silent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.wanted) > 0
}

// answered takes the reply to the first EXISTS without one.
func (c *trackingConn) answered(free bool) {
	c.mu.Lock()
	if len(c.wanted) == 0 { // a reply to nothing: never
		c.mu.Unlock()
		return
	}
	key := c.wanted[0]
	c.wanted[0] = "" // the name is not kept in memory
	c.wanted = c.wanted[1:]
	if _, known := c.tracked[key]; known {
		c.tracked[key] = trackedKey{key, true}
	}
	c.mu.Unlock()
	c.by.keyTracked(c.as, key, free)
}

// changed takes a push: some keys have changed, or all.
func (c *trackingConn) changed(v resp.Value) {
	if len(v.Elems) != 2 || string(v.Elems[0].Text) != "invalidate" {
		return
	}
	var keys []string
	c.mu.Lock()
	for _, e := range v.Elems[1].Elems {
		name := c.tracked[string(e.Text)].name
		if name == "" {
			name = string(e.Text)
		}
		keys = append(keys, name)
	}
	if v.Elems[1].IsNull() { // FLUSHALL
		for key := range c.tracked {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		if c.tracked[key].now {
			delete(c.tracked, key)
		}
	}
	c.mu.Unlock()
	for _, key := range keys {
		c.by.keyChanged(c.as, key)
	}
}

// forgetUnneeded forgets tracked keys for which no client waits and that no session holds.
func (c *trackingConn) forgetUnneeded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, tracked := range c.tracked {
		id := names.Lock{DB: c.as.DB, Key: key}
		if tracked.now && !c.by.queues.Of(id).HasWaiters() && !c.by.sessions.Has(id) {
			delete(c.tracked, key)
		}
	}
}

// KeyChanged makes the first waiter poll, unless it is the turn of foreign clients. For them, and
// for a session, it has the key tracked again.
func (k *Tracking) keyChanged(as names.Identity, key string) {
	id := names.Lock{DB: as.DB, Key: key}
	if again := k.queues.Of(id).KeyChanged(time.Now()); again || k.sessions.Has(id) {
		k.Want(as, key)
	}
}

// KeyTracked notes that a lock's key is tracked from now on. If the key is missing, the first
// waiter polls, after the turn of foreign clients; otherwise that turn is over. Sessions are
// verified: the key may have changed before.
func (k *Tracking) keyTracked(as names.Identity, key string, missing bool) {
	id := names.Lock{DB: as.DB, Key: key}
	k.queues.Of(id).KeyTracked(missing, time.Now())
	k.sessions.VerifySessions(id.DB, []string{key}, "")
}
