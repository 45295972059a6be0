package hints

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
)

const (
	// The pauses before a connection is opened again that fails again and again. One that was open
	// for at least as long as the pause before it, and as minRetry, has not failed.
	minRetry = 20 * time.Millisecond
	maxRetry = time.Second
	// beatEvery is how often a connection without anything to do asks for a sign of life: an
	// upstream that closes idle connections (timeout) does so after a second at the soonest.
	beatEvery = time.Second
	// connIdle is how long a connection is kept that nobody needs, a key that concerns nobody, and
	// a connection whose upstream owes an answer. It is also how often all that is looked at.
	connIdle = 5 * time.Second
	// maxReply bounds a reply, bytes. A longer message is ignored.
	maxReply = 1 << 20
	// maxTrackedName bounds a tracked key's name, bytes: a longer one is polled for.
	maxTrackedName = maxReply - 1<<10
	// maxKeptReply is how large a reply's buffer can be to be used again, bytes.
	maxKeptReply = 16 << 10
)

// conn is one connection, opened again until nobody needs it. It reads keys by EXISTS, and the
// upstream reports the next change of each. A new one reads its keys again. In a cluster it goes to
// each node with such a key or channel. A key is wanted until its EXISTS is answered, then tracked.
// Listener.mu guards all that can change.
//
// In a cluster each channel on which proxies tell who waits has a connection apart, which asks the
// node of that channel only: what a silent node owes would hold back the messages of the others.
type conn struct {
	l         *Listener
	as        names.Identity
	apart     int       // the place of its only channel; 0 is none
	serving   bool      // a goroutine opens it
	deaf      time.Time // when the user was last refused a channel
	untracked time.Time // when it was last refused to track

	open   bool // what is asked is sent
	resp2  bool // the upstream does not know HELLO: it can't track
	asked  bool // CLIENT TRACKING has been sent
	tracks bool // the upstream has accepted to track

	owed   []request     // what is unanswered, in order
	since  time.Time     // when the upstream began to owe the first of owed
	unsent []byte        // what is to be sent for the last of them
	more   chan struct{} // holds one: there is something to send

	keys  map[string]trackedKey
	used  time.Time // when it was last needed
	swept time.Time // when that was last looked at
}

// trackedKey is a key that is wanted, or tracked. A push has a copy of its name, which does not
// replace the lock's own.
type trackedKey struct {
	name string
	now  bool // false while it is wanted
}

// kind is what a request asks for.
type kind uint8

const (
	asksLife kind = iota
	asksProtocol
	asksTracking
	asksKey
	asksChannel
	endsChannel
)

// request is one without an answer.
type request struct {
	kind     kind
	name     string // of the key or channel
	verifies bool   // session locks are verified behind it
}

// wantLocked has a key tracked. It returns false if there are too many. mu is held.
func (c *conn) wantLocked(key string) bool {
	if _, known := c.keys[key]; known {
		return true
	}
	if len(c.keys) >= maxTracked {
		return false
	}
	c.keys[key] = trackedKey{name: key}
	c.startLocked()
	c.trackLocked(key)
	return true
}

// trackLocked asks for a key. mu is held.
func (c *conn) trackLocked(key string) {
	if c.open && !c.asked {
		c.asked = true
		c.askLocked(request{kind: asksTracking}, "CLIENT", "TRACKING", "ON")
	}
	c.askLocked(request{kind: asksKey, name: key}, "EXISTS", key)
}

// askLocked sends a request soon, unless what is needed is asked for when c opens. mu is held.
func (c *conn) askLocked(r request, words ...string) {
	if !c.open {
		return
	}
	if len(c.owed) == 0 {
		c.since = time.Now()
	}
	c.owed = append(c.owed, r)
	c.unsent = resp.AppendCommand(c.unsent, words...)
	select {
	case c.more <- struct{}{}:
	default:
	}
}

// takeLocked removes the first request without an answer, which has come. mu is held.
func (c *conn) takeLocked() (r request) {
	if len(c.owed) > 0 { // otherwise it is a reply to nothing: never
		r = c.owed[0]
		c.owed[0] = request{} // the name is not kept in memory
		c.owed, c.since = c.owed[1:], time.Now()
	}
	return r
}

// startLocked has c opened. mu is held.
func (c *conn) startLocked() {
	if c.used = time.Now(); !c.serving {
		c.serving = true
		c.l.Timers.After(0, c.serve) // ends when it isn't needed, or is refused
	}
}

// serve keeps a connection until nobody needs it, or the upstream refuses it.
func (c *conn) serve(ctx context.Context) {
	loopguard.MayWait()
	for pause := time.Duration(0); ; {
		lasted, err := c.connect(ctx)
		if c.ended(ctx, err) {
			return
		}
		c.l.Log.Debug("the connection that hears of changes of locks is lost", "error", err)
		if lasted >= max(pause, minRetry) {
			pause = 0
			continue
		}
		pause = min(max(2*pause, minRetry), maxRetry)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// errUnneeded is the end of a connection that nobody needs.
var errUnneeded = errors.New("nobody needs it")

// ended notes that the connection has ended, and why. It reports whether it is not to be opened
// again. Those who relied on it poll.
func (c *conn) ended(ctx context.Context, err error) (over bool) {
	denied, invalid := isRefused(err)
	l := c.l
	l.mu.Lock()
	relied := c.relyOnNothingLocked()
	c.open = false
	if l.subscriber == c {
		l.hearNothingLocked()
	}
	if denied || invalid {
		c.used = time.Time{}
		c.refuseLocked(true, true)
	}
	if over = ctx.Err() != nil || !c.neededLocked(); over {
		if c.serving = false; c.apart == 0 && c.deaf.IsZero() && c.untracked.IsZero() {
			delete(l.conns, c.as)
		}
	}
	l.mu.Unlock()
	l.mayBeFree(c.as, relied)
	return over
}

// relyOnNothingLocked notes that no key is tracked any more, and returns all. mu is held.
func (c *conn) relyOnNothingLocked() (keys []string) {
	c.tracks = false
	for key := range c.keys {
		keys = append(keys, key)
		c.keys[key] = trackedKey{name: key}
	}
	return keys
}

// mayBeFree has those poll who relied on these keys being tracked.
func (l *Listener) mayBeFree(as names.Identity, keys []string) {
	for _, key := range keys {
		l.queues.Of(names.Lock{DB: as.DB, Key: key}).MayBeFree()
	}
}

// refuseLocked notes that the user may not subscribe, or not track. mu is held.
func (c *conn) refuseLocked(channels, tracking bool) {
	if tracking {
		c.untracked, c.asked = time.Now(), false
		clear(c.keys)
	}
	if channels {
		c.deaf = time.Now()
	}
	if channels && c.l.subscriber == c {
		c.l.subscriber = nil
		c.l.hearNothingLocked()
		c.l.chooseLocked()
	}
}

// connect opens the connection, and serves it until it ends. lasted is how long it was open.
func (c *conn) connect(ctx context.Context) (lasted time.Duration, err error) {
	dialing, cancel := context.WithTimeout(ctx, c.l.Clients.Patience())
	nc, err := c.l.Clients.Client(c.as).Options().Dialer(dialing, "", "")
	cancel()
	if err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { nc.Close() })
	defer stop()
	began := time.Now()
	c.begin()
	ended := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() { c.write(nc, ended) }) // ends with ended
	err = c.read(nc)
	close(ended)
	nc.Close()
	writing.Wait()
	return time.Since(began), err
}

// begin asks a new connection for all that is needed.
func (c *conn) begin() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.open, c.resp2, c.asked, c.owed, c.unsent = true, false, false, nil, nil
	if c.apart != 0 {
		c.reviewLocked(nil)
		return
	}
	c.askLocked(request{kind: asksProtocol}, "HELLO", "3")
	for key := range c.keys {
		c.trackLocked(key)
	}
	if c.l.subscriber == c {
		c.subscribeAllLocked()
	}
}

// write sends what is asked.
func (c *conn) write(nc net.Conn, ended chan struct{}) {
	loopguard.MayWait()
	for {
		select {
		case <-ended:
			return
		case <-c.more:
		}
		c.l.mu.Lock()
		out := c.unsent
		c.unsent = nil
		c.l.mu.Unlock()
		nc.SetWriteDeadline(time.Now().Add(c.l.Clients.Patience()))
		if _, err := nc.Write(out); err != nil {
			nc.Close() // the reader ends
			return
		}
	}
}

// read takes replies and pushes.
func (c *conn) read(nc net.Conn) error {
	var scan resp.Scanner
	buf, begun := make([]byte, 4<<10), []byte(nil)
	for last := time.Now(); ; {
		if now := time.Now(); now.Sub(last) >= beatEvery {
			last = now
			if err := c.beat(now); err != nil {
				return err
			}
		}
		nc.SetReadDeadline(last.Add(beatEvery))
		n, err := nc.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case err == io.EOF && n == 0:
			return errors.New("closed by the upstream")
		case err != nil:
			return err
		}
		for data := buf[:n]; len(data) > 0; {
			used, done, err := scan.Scan(data)
			if err != nil {
				return err
			}
			if len(begun) <= maxReply {
				begun = append(begun, data[:used]...)
			}
			if data = data[used:]; !done {
				break
			}
			if err := c.take(begun, scan.Head()); err != nil {
				return err
			}
			if begun = begun[:0]; cap(begun) > maxKeptReply {
				begun = nil
			}
		}
	}
}

// beat looks what is still needed, and whether the upstream still answers.
func (c *conn) beat(now time.Time) error {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(c.swept) >= connIdle {
		c.swept = now
		c.forgetLocked()
		if c.apart != 0 {
			c.reviewLocked(nil)
		} else if l.subscriber == c {
			l.mu.Unlock()
			used := l.placesInUse()
			l.mu.Lock()
			c.reviewLocked(used)
		}
	}
	if len(c.keys) > 0 || l.subscriber == c {
		c.used = now
	}
	switch {
	case !c.neededLocked():
		return errUnneeded
	case len(c.owed) == 0:
		c.askLocked(request{}, "PING")
	case now.Sub(c.since) > connIdle:
		return errors.New("no answer")
	}
	return nil
}

// forgetLocked forgets tracked keys for which no client waits and that no session holds. mu is
// held.
func (c *conn) forgetLocked() {
	for key, tracked := range c.keys {
		id := names.Lock{DB: c.as.DB, Key: key}
		if tracked.now && !c.l.queues.Of(id).Concerns() && !c.l.sessions.Has(id) {
			delete(c.keys, key)
		}
	}
}

// neededLocked reports whether c is needed, or was until lately. mu is held.
func (c *conn) neededLocked() bool {
	if s := c.l.subscriber; c.apart != 0 {
		return s != nil && s.as == c.as && c.l.sharded.Load()
	}
	return len(c.keys) > 0 || c.l.subscriber == c || time.Since(c.used) < connIdle
}
