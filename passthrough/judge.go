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
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/fifo"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

const (
	// maxJudges is how many judges there are at most.
	maxJudges = 32
	// maxHearing is for how long all judges can be silent, while clients wait for them, before
	// further logins take homes.
	maxHearing = time.Second
)

// judges are a Pool's. Their zero value is ready.
type judges struct {
	mu      sync.Mutex
	all     []*judge         // guarded by mu; those that are open. The first one that is idle is used
	waiting fifo.Queue[plea] // guarded by mu
	opening int              // guarded by mu
	heardAt int64            // guarded by mu; when one last said something, as monotonic.Now
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
	pool   *Pool
	given  spare   // guarded by judges.mu; what it was, and when it last said something
	hears  *client // guarded by judges.mu; whose login has no verdict yet
	resets bool    // guarded by judges.mu; the reply to RESET is missing
}

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

var resetRequest = resp.AppendCommand(nil, "RESET")

// canBeJudgedLocked reports whether a judge can hear a login, and lanes serve the client then. mu is
// held.
func (p *Pipe) canBeJudgedLocked(r *Request) bool {
	c := &p.c
	return r.Way == Login && r.Change != nil && c.home == nil && c.pending.empty() && !c.within &&
		(c.route == byLane || c.route == byHome) && !c.needsHome.any() &&
		!c.pending.Has(unlikeNew) && c.pool.LanesPerKey > 0 && c.pool.sharing.allowed() &&
		!c.pool.Upstream.IsCluster() && c.pool.hasLanes(loginOf(r.after(c.pending.Identity))) &&
		c.pool.hasJudges()
}

// hasJudges reports whether there are judges that give verdicts. It has the first one opened, and does
// not wait for it.
func (p *Pool) hasJudges() bool {
	s := &p.judges
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all)+s.opening == 0 {
		p.openJudgeLocked()
	}
	return len(s.all) > 0 &&
		(s.waiting.Len() == 0 || monotonic.Since(s.heardAt) < maxHearing)
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
	s.mu.Lock()
	s.opening--
	added := err == nil && !s.closed
	if added {
		p.addJudgeLocked(found)
	}
	s.mu.Unlock()
	if err == nil && !added {
		upstream.CloseAndWait(found.Conn)
	}
	p.hearWaiting(err)
}

// addJudgeLocked makes a judge. judges.mu is held.
func (p *Pool) addJudgeLocked(found spare) {
	j := &judge{pool: p, given: found}
	j.init(found.Conn, j, minBuf, p.loops)
	j.replies.shared = true
	p.judges.all = append(p.judges.all, j)
	p.judges.heardAt = found.heardAt
	p.goroutines.Add(1)
	j.start() // until its connection ends: Pool.Close ends it, and waits
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

// judgeLocked puts a login to Redis, for whose verdict the client is owed a reply. mu is held.
func (p *Pipe) judgeLocked(r *Request) {
	e := r.entry()
	e.judged = true
	p.c.pending.push(e)
	p.c.inFlight++ // no write: what Writes says stays
	p.lanes.judged = true
	p.homes.openSoonLocked()
	s := &p.c.pool.judges
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.Push(plea{&p.c, slices.Clone(r.Raw)})
	p.c.pool.hearLocked(true)
}

// hearLocked has judges that are idle hear the clients that wait, and others opened for the rest if
// opens is true. It closes those that are of no use any more. It does not wait. judges.mu is held.
func (p *Pool) hearLocked(opens bool) {
	s := &p.judges
	term := p.currentTerm()
	for _, j := range s.all {
		switch {
		case j.hears != nil || j.resets:
		case !p.isCurrent(&j.given, term):
			j.Close()
		case s.waiting.Len() > 0:
			next, _ := s.waiting.Pop()
			j.hears = next.client
			j.writeIdle(next.raw)
		}
	}
	if opens && s.opening < s.waiting.Len() {
		p.openJudgeLocked()
	}
}

// hearWaiting has clients heard after a judge has come, has failed to open, or has ended. If there are
// none, and will be none, the logins that wait are lost.
func (p *Pool) hearWaiting(failed error) {
	s := &p.judges
	s.mu.Lock()
	var lost []plea
	if len(s.all)+s.opening == 0 && (failed != nil || s.closed) {
		lost = s.waiting.PopAll()
	} else {
		p.hearLocked(failed == nil)
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

// Consume is for eventloop.Reader. It gives the client its verdict, and resets the judge.
func (j *judge) Consume(data []byte, _ *eventloop.Iteration) error {
	s := &j.pool.judges
	for len(data) > 0 {
		if j.replies.atPush(data) {
			n, err := j.replies.dropPush(data)
			if err != nil {
				return err
			}
			data = data[n:]
			continue
		}
		s.mu.Lock()
		c := j.hears
		s.mu.Unlock()
		if c == nil {
			return j.wasReset(data)
		}
		n, judged, err := c.deliverFromLane(&j.replies, data, 1)
		if err != nil {
			return err
		}
		if data = data[n:]; judged > 0 {
			if len(data) > 0 {
				return errUnasked
			}
			s.mu.Lock()
			j.hears, j.resets = nil, true
			j.writeIdle(resetRequest)
			s.mu.Unlock()
		}
	}
	return nil
}

// wasReset takes what the judge says while it hears nobody.
func (j *judge) wasReset(data []byte) error {
	s := &j.pool.judges
	s.mu.Lock()
	defer s.mu.Unlock()
	n, done, err := j.replies.scan.Scan(data)
	switch head := j.replies.scan.Head(); {
	case err != nil:
		return err
	case !j.resets, n < len(data), done && (head.Type != '+' || string(head.Line) != "RESET"):
		return errUnasked
	case !done:
		return nil
	}
	j.resets = false
	j.given.heardAt = monotonic.Now()
	s.heardAt = j.given.heardAt
	j.pool.hearLocked(true)
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
	c := j.hears
	s.all = slices.DeleteFunc(s.all, func(other *judge) bool { return other == j })
	s.mu.Unlock()
	if c != nil {
		c.laneLost(err, 1, 0, j.replies.within())
	}
	j.pool.hearWaiting(nil)
	close(j.ended)
	j.pool.goroutines.Done()
}
