package hints

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
)

const (
	// The pauses before a connection is opened again that fails again and again. One that has
	// lasted for the longest of them is opened again at once.
	minTrackingRetry = 100 * time.Millisecond
	maxTrackingRetry = time.Second
	// trackingBeat is how often a connection without anything to do asks for a sign of life: an
	// upstream that closes idle connections (timeout) does so after a second at the soonest.
	trackingBeat = time.Second
	// trackingIdle is how long a connection without a key is kept, a key that concerns nobody, and
	// a connection whose upstream owes an answer.
	trackingIdle = 5 * time.Second
	// maxTrackingReply bounds a reply, bytes. A push names one key.
	maxTrackingReply = 1 << 20
	// maxTrackedName bounds a tracked key's name, bytes: a longer one is polled for.
	maxTrackedName = maxTrackingReply - 1<<10
	// maxKeptReply is how large a reply's buffer can be to be used again, bytes.
	maxKeptReply = 16 << 10
)

// trackingConn is one connection, opened again until nobody needs it. A key is wanted until its
// EXISTS is answered, then tracked.
type trackingConn struct {
	by      *Tracking
	as      names.Identity
	mu      sync.Mutex
	up      bool                  // guarded by mu; the upstream has accepted to track
	owed    []owedReply           // guarded by mu; what is unanswered, in order
	since   time.Time             // guarded by mu; when the upstream began to owe the first of owed
	unsent  []byte                // guarded by mu; what is to be sent for the last of them
	tracked map[string]trackedKey // guarded by mu
	used    time.Time             // guarded by mu; when a key was last needed
	swept   time.Time             // guarded by mu; when that was last looked at
	more    chan struct{}         // holds one: there is something to send
}

// owedReply is one to the EXISTS of a key, or to a PING.
type owedReply struct {
	key  string
	ping bool
}

// trackedKey is a key that is wanted, or tracked. A push has a copy of its name, which does not
// replace the lock's own.
type trackedKey struct {
	name string
	now  bool // false while it is wanted
}

// want has a key tracked. It returns false if there are too many.
func (c *trackingConn) want(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.tracked[key]; known || len(key) > maxTrackedName {
		return true
	}
	if len(c.tracked) >= maxTracked {
		return false
	}
	c.tracked[key], c.used = trackedKey{name: key}, time.Now()
	c.askLocked(owedReply{key: key}, "EXISTS", key)
	return true
}

// askLocked sends a request soon. mu is held.
func (c *trackingConn) askLocked(reply owedReply, request ...string) {
	if len(c.owed) == 0 {
		c.since = time.Now()
	}
	c.owed = append(c.owed, reply)
	c.unsent = resp.AppendCommand(c.unsent, request...)
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// serve keeps a connection until nobody needs it, or the upstream refuses it.
func (c *trackingConn) serve(ctx context.Context) {
	loopguard.MayWait()
	for failures := 0; ; {
		began := time.Now()
		err := c.connect(ctx)
		if c.end(ctx, err) {
			return
		}
		c.by.Log.Debug("the connection that tracks the keys of locks is lost", "error", err)
		if failures++; time.Since(began) >= maxTrackingRetry {
			failures = 0
		}
		pauseAfter(ctx, failures, minTrackingRetry, maxTrackingRetry)
	}
}

// errUnneeded is the end of a connection that nobody needs.
var errUnneeded = errors.New("nobody needs it")

// refusedError is the upstream's error to what the connection asks for.
type refusedError string

func (e refusedError) Error() string { return string(e) }

// lasts reports whether the upstream would say the same again: it does not know the commands, or
// the user may not use them.
func (e refusedError) lasts() bool {
	code, _, _ := strings.Cut(string(e), " ")
	return code == "ERR" || code == "NOPROTO"
}

// end notes that the connection has ended, and why. It reports whether it is not to be opened
// again. Those who relied on it poll.
func (c *trackingConn) end(ctx context.Context, err error) (over bool) {
	var refused refusedError // LOADING, CLUSTERDOWN and the like pass
	denied, invalid := isRefused(err)
	over = ctx.Err() != nil
	if denied || invalid || errors.As(err, &refused) && refused.lasts() {
		over = true
		c.by.Log.Debug("cannot track the keys of locks: waiters poll", "error", err)
		c.by.refuse(c.as)
	}
	k := c.by
	k.mu.Lock()
	c.mu.Lock()
	if over = over || !c.neededLocked(); over {
		delete(k.conns, c.as)
	}
	relied := slices.Collect(maps.Keys(c.tracked))
	c.startLocked()
	c.mu.Unlock()
	k.mu.Unlock()
	for _, key := range relied {
		k.queues.Of(names.Lock{DB: c.as.DB, Key: key}).MayBeFree()
	}
	return over
}

// startLocked has a new connection track the keys that are wanted. mu is held.
func (c *trackingConn) startLocked() {
	c.up, c.owed, c.unsent = false, nil, nil
	for key := range c.tracked {
		c.tracked[key] = trackedKey{name: key}
		c.askLocked(owedReply{key: key}, "EXISTS", key)
	}
}

// connect opens the connection, and serves it until it ends.
func (c *trackingConn) connect(ctx context.Context) error {
	dialing, cancel := context.WithTimeout(ctx, c.by.Clients.Patience())
	conn, err := c.by.Clients.Client(c.as).Options().Dialer(dialing, "", "")
	cancel()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	ended := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() { c.write(conn, ended) }) // ends with ended
	err = c.read(conn)
	close(ended)
	conn.Close()
	writing.Wait()
	return err
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

// read takes replies and pushes.
func (c *trackingConn) read(conn net.Conn) error {
	var scan resp.Scanner
	buf, begun, setup := make([]byte, 4<<10), []byte(nil), 2
	for last := time.Now(); ; {
		if now := time.Now(); now.Sub(last) >= trackingBeat {
			last = now
			if err := c.beat(now); err != nil {
				return err
			}
		}
		conn.SetReadDeadline(last.Add(trackingBeat))
		n, err := conn.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
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
				return refusedError(v.Text)
			case v.Type == '>':
				c.changed(v)
			case setup > 0:
				if setup--; setup == 0 {
					c.accepted()
				}
			default:
				c.answered(v.Int == 0)
			}
		}
	}
}

// accepted notes that the upstream tracks keys from now on.
func (c *trackingConn) accepted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up = true
}

// beat looks whether the connection is still needed, and whether the upstream still answers.
func (c *trackingConn) beat(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(now)
	switch {
	case !c.neededLocked():
		return errUnneeded
	case len(c.owed) == 0:
		c.askLocked(owedReply{ping: true}, "PING")
	case now.Sub(c.since) > trackingIdle:
		return errors.New("no answer")
	}
	return nil
}

// answered takes the reply to the first request without one.
func (c *trackingConn) answered(free bool) {
	c.mu.Lock()
	if len(c.owed) == 0 { // a reply to nothing: never
		c.mu.Unlock()
		return
	}
	reply := c.owed[0]
	c.owed[0] = owedReply{} // the name is not kept in memory
	c.owed, c.since = c.owed[1:], time.Now()
	if _, known := c.tracked[reply.key]; known && !reply.ping {
		c.tracked[reply.key] = trackedKey{reply.key, true}
	}
	c.mu.Unlock()
	if !reply.ping {
		c.by.keyTracked(c.as, reply.key, free)
	}
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

// forgetLocked forgets tracked keys for which no client waits and that no session holds. mu is held.
func (c *trackingConn) forgetLocked(now time.Time) {
	if now.Sub(c.swept) < trackingIdle {
		return
	}
	c.swept = now
	for key, tracked := range c.tracked {
		id := names.Lock{DB: c.as.DB, Key: key}
		if tracked.now && !c.by.queues.Of(id).Concerns() && !c.by.sessions.Has(id) {
			delete(c.tracked, key)
		}
	}
	if len(c.tracked) > 0 {
		c.used = now
	}
}

// neededLocked reports whether there is a key to follow, or was until lately. mu is held.
func (c *trackingConn) neededLocked() bool {
	return len(c.tracked) > 0 || time.Since(c.used) < trackingIdle
}
