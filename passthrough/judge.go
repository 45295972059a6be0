package passthrough

// Redis judges each login of its own, on a connection that does nothing else: it serves nobody, it
// hears one client at a time, and nothing is sent behind a login until its verdict is there. (Behind a
// reply that it has not sent yet, Redis as of 7.2 and Valkey can leave out that they refuse a login.)
// Only a login of which lanes are open is put to a judge, so that they serve the client then. Others
// take a home.

import (
	"errors"
	"slices"
	"sync"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/fifo"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// login is a user and a password, as a client has sent them.
type login struct {
	user, password string
	sent           bool
}

func loginOf(id upstream.Identity) login { return login{id.User, id.Password, id.LoggedIn} }

// hasLanes reports whether there are lanes of a login.
func (p *Pool) hasLanes(as login) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logins[as] > 0
}

// maxJudges is how many judges there are at most.
const maxJudges = 32

// judges are a Pool's. Their zero value is ready.
type judges struct {
	mu      sync.Mutex
	free    []*judge         // guarded by mu; the one that has judged last is the last
	all     []*judge         // guarded by mu; those that are open
	waiting fifo.Queue[plea] // guarded by mu
	opening int              // guarded by mu
	closed  bool             // guarded by mu
}

// plea is a login that Redis has not been asked about.
type plea struct {
	client *client
	raw    []byte
}

// judge is a connection by which Redis judges logins. Between two of them it is RESET, so that it is
// nobody's.
type judge struct {
	connReader
	pool  *Pool
	given spare // what it was; heardAt is guarded by judges.mu

	mu     sync.Mutex // held while it is written
	hears  *client    // guarded by mu; whose login has no verdict yet
	resets bool       // guarded by mu; the reply to RESET is missing
	err    error      // guarded by mu; why the connection has ended
}

var resetRequest = resp.AppendCommand(nil, "RESET")

// hasJudges reports whether there are judges. It has the first one opened, and does not wait for it.
func (p *Pool) hasJudges() bool {
	s := &p.judges
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 && s.opening == 0 {
		p.openJudgeLocked()
	}
	return len(s.all) > 0
}

// openJudgeLocked has another judge opened, unless there are enough. judges.mu is held.
func (p *Pool) openJudgeLocked() {
	s := &p.judges
	if !s.closed && len(s.all)+s.opening < maxJudges {
		s.opening++
		p.goroutines.Go(p.openJudge) // ends within DialTimeout, or with Close, which waits for it
	}
}

func (p *Pool) openJudge() {
	s := &p.judges
	found, err := p.openSpare()
	var j *judge
	s.mu.Lock()
	s.opening--
	if err == nil && !s.closed {
		j = p.addJudgeLocked(found)
	}
	s.mu.Unlock()
	switch {
	case j != nil:
		j.start() // until its connection ends: Pool.Close ends it, and waits
	case err == nil:
		upstream.CloseAndWait(found.Conn)
	}
	p.hearWaiting(err)
}

// addJudgeLocked makes a judge, which must be started. judges.mu is held.
func (p *Pool) addJudgeLocked(found spare) *judge {
	s, j := &p.judges, &judge{pool: p, given: found}
	j.init(found.Conn, j, minBuf, p.loops)
	j.replies.shared = true
	s.free, s.all = append(s.free, j), append(s.all, j)
	p.goroutines.Add(1)
	return j
}

// close ends all judges. There will be no others.
func (s *judges) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, j := range s.all {
		j.Close()
	}
}

// judgeLocked puts a login to Redis, for whose verdict c will be owed e. c.mu is held.
func (p *Pool) judgeLocked(c *client, e pendingReply, raw []byte) {
	e.judged = true
	c.expectOnLane(e)
	s := &p.judges
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.Push(plea{c, slices.Clone(raw)})
	p.hearLocked()
	p.wantJudgesLocked()
}

// wantJudgesLocked has another judge opened if more clients wait than are being opened. judges.mu is
// held.
func (p *Pool) wantJudgesLocked() {
	if s := &p.judges; s.opening < s.waiting.Len() {
		p.openJudgeLocked()
	}
}

// hearLocked has judges that are free hear the clients that wait. It does not wait. judges.mu is held.
func (p *Pool) hearLocked() {
	s := &p.judges
	term := p.currentTerm()
	for s.waiting.Len() > 0 && len(s.free) > 0 {
		j := s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
		if !p.isCurrent(&j.given, term) {
			j.Close()
		} else if j.isOpen() {
			next, _ := s.waiting.Pop()
			j.hear(next)
		}
	}
}

// hearWaiting has clients heard after a judge has come, has failed to open, or has ended. If there are
// none, and will be none, the logins that wait are lost.
func (p *Pool) hearWaiting(failed error) {
	s := &p.judges
	s.mu.Lock()
	var lost []plea
	if none := len(s.all)+s.opening == 0; none && (failed != nil || s.closed) {
		lost = s.waiting.PopAll()
	} else if p.hearLocked(); failed == nil {
		p.wantJudgesLocked()
	}
	s.mu.Unlock()
	if known, ok := errors.AsType[*upstream.Error](failed); ok {
		failed = known.Err
	} else if failed == nil {
		failed = ErrClosed
	}
	for _, l := range lost {
		l.client.laneLost(failed, 0, 1, false)
	}
}

func (j *judge) isOpen() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err == nil
}

// hear puts a login to Redis. If the connection has just ended, connEnded waits for judges.mu, which is
// held.
func (j *judge) hear(l plea) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.hears = l.client
	j.writeIdle(l.raw)
}

// canBeJudgedLocked reports whether a judge can hear a login, and lanes serve the client then. mu is
// held.
func (p *Pipe) canBeJudgedLocked(login *Request) bool {
	c := &p.c
	return c.home == nil && c.pending.empty() && !c.within && c.route != dropped && c.route != gone &&
		!c.needsHome.any() && !c.pending.Has(unlikeNew) && c.pool.LanesPerKey > 0 &&
		c.pool.sharing.allowed() && !c.pool.Upstream.IsCluster() &&
		c.pool.hasLanes(loginOf(login.after(c.pending.Identity))) && c.pool.hasJudges()
}

// Consume is for eventloop.Reader. It gives the client its verdict, and resets the judge.
func (j *judge) Consume(data []byte, _ *eventloop.Iteration) error {
	for len(data) > 0 {
		if j.replies.atPush(data) {
			n, err := j.replies.dropPush(data)
			if err != nil {
				return err
			}
			data = data[n:]
			continue
		}
		j.mu.Lock()
		c, resets := j.hears, j.resets
		j.mu.Unlock()
		if c == nil {
			return j.wasReset(data, resets)
		}
		n, judged, err := c.deliverFromLane(&j.replies, data, 1)
		if err != nil {
			return err
		}
		if data = data[n:]; judged > 0 {
			if len(data) > 0 {
				return errUnasked
			}
			j.mu.Lock()
			j.hears, j.resets = nil, true
			j.writeIdle(resetRequest)
			j.mu.Unlock()
		}
	}
	return nil
}

// wasReset takes what the judge says while it hears nobody.
func (j *judge) wasReset(data []byte, resets bool) error {
	n, done, err := j.replies.scan.Scan(data)
	switch head := j.replies.scan.Head(); {
	case err != nil:
		return err
	case !resets, n < len(data), done && string(head.Line) != "RESET":
		return errUnasked
	case !done:
		return nil
	}
	j.mu.Lock()
	j.resets = false
	j.mu.Unlock()
	s := &j.pool.judges
	s.mu.Lock()
	defer s.mu.Unlock()
	j.given.heardAt = monotonic.Now()
	s.free = append(s.free, j)
	j.pool.hearLocked()
	return nil
}

// MustWait is for eventloop.Reader.
func (j *judge) MustWait() bool { return false }

// Wait is for eventloop.Reader.
func (j *judge) Wait() {}

// connEnded is for connReader. A client without a verdict is as it was before its login.
func (j *judge) connEnded(err error) {
	loopguard.MayWait()
	s := &j.pool.judges
	s.mu.Lock()
	j.mu.Lock()
	c := j.hears
	j.err, j.hears = err, nil
	j.mu.Unlock()
	is := func(other *judge) bool { return other == j }
	s.free, s.all = slices.DeleteFunc(s.free, is), slices.DeleteFunc(s.all, is)
	s.mu.Unlock()
	if c != nil {
		c.laneLost(err, 1, 0, j.replies.within())
	}
	j.pool.hearWaiting(nil)
	close(j.ended)
	j.pool.goroutines.Done()
}
