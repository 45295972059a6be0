package passthrough

// Redis judges each login of its own, on a connection that does nothing else: it serves nobody, it
// hears one client at a time, and nothing is sent behind a login until its verdict is there. (Behind
// a reply that it has not sent yet, Redis as of 7.2 and Valkey can leave out that they refuse a
// login.) Only a login of which lanes are open is put to a judge, so that they serve the client
// then. Others take a home.

import (
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
	maxJudges = 16
	// maxPlea is how long a login can be that a judge hears, bytes.
	maxPlea = 8 << 10
	// maxHearing is for how long all judges can be silent before logins for which none is free take
	// homes. Their connections can have been cut, and nobody was told.
	maxHearing = time.Second
)

// judges are a Pool's. Their zero value is ready.
type judges struct {
	mu      sync.Mutex
	all     []*judge         // guarded by mu; those that are open. The first one that is free is used
	opening bool             // guarded by mu; another one is being opened
	waiting fifo.Queue[plea] // guarded by mu
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
	pool  *Pool
	phase judgePhase // guarded by judges.mu
	given spare      // guarded by judges.mu; what it was, and when it last said something
	hears *client    // guarded by judges.mu; whose login has no verdict yet, while it is hearing
}

// judgePhase is what a judge does.
type judgePhase uint8

const (
	free      judgePhase = iota // it is nobody's, and owes nothing
	hearing                     // it owes a verdict
	resetting                   // it owes the reply to RESET
)

var resetRequest = resp.AppendCommand(nil, "RESET")

// hasLanes reports whether there are lanes of a login.
func (p *Pool) hasLanes(login upstream.Identity) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logins[login] > 0
}

// hear has a judge hear a login, at once or in its turn, and reports whether one can be expected to.
// If none is free it has another one opened. It does not wait.
func (p *Pool) hear(l plea) (heard bool) {
	s := &p.judges
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := p.freeJudgeLocked(); j != nil {
		j.hearLocked(l)
		return true
	}
	if !s.closed && !s.opening && len(s.all) < maxJudges {
		s.opening = true
		p.goroutines.Go(p.openJudge) // ends within DialTimeout, or with Close, which waits for it
	}
	heard = len(s.all) > 0 && monotonic.Since(s.heardAt) < maxHearing
	if heard {
		s.waiting.Push(l)
	}
	return heard
}

// freeJudgeLocked returns a judge that can hear a login, or nil. It closes those that are of no use
// any more. judges.mu is held.
func (p *Pool) freeJudgeLocked() (found *judge) {
	p.judges.all = slices.DeleteFunc(p.judges.all, func(j *judge) (useless bool) {
		switch {
		case j.phase != free:
		case !p.isCurrent(&j.given, p.currentTerm()):
			j.Close()
			return true
		case found == nil:
			found = j
		}
		return false
	})
	return found
}

// hearLocked puts a login to Redis. judges.mu is held.
func (j *judge) hearLocked(l plea) {
	j.phase, j.hears = hearing, l.client
	j.writeIdle(l.raw)
}

func (p *Pool) openJudge() {
	s := &p.judges
	found, err := p.openSpare()
	s.mu.Lock()
	s.opening = false
	s.mu.Unlock()
	if err == nil {
		p.addJudge(found)
	}
}

// addJudge makes a judge of a connection as new.
func (p *Pool) addJudge(found spare) {
	j := &judge{pool: p, given: found}
	j.init(found.Conn, j, minBuf, p.loops)
	j.replies.shared = true
	s := &p.judges
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.all = append(s.all, j)
		j.becomesLocked(free)
	}
	s.mu.Unlock()
	if closed {
		upstream.CloseAndWait(found.Conn)
		return
	}
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

// becomes changes the phase of a judge that has said something. One that is free hears the next
// client.
func (j *judge) becomes(phase judgePhase) {
	j.pool.judges.mu.Lock()
	defer j.pool.judges.mu.Unlock()
	j.becomesLocked(phase)
}

// becomesLocked is becomes with judges.mu held.
func (j *judge) becomesLocked(phase judgePhase) {
	s := &j.pool.judges
	j.phase, j.hears = phase, nil
	s.heardAt = monotonic.Now()
	j.given.heardAt = s.heardAt
	switch {
	case phase == resetting:
		j.writeIdle(resetRequest)
	case !j.pool.isCurrent(&j.given, j.pool.currentTerm()):
		j.Close()
	default:
		if next, ok := s.waiting.Pop(); ok {
			j.hearLocked(next)
		}
	}
}

// Consume is for eventloop.Reader. It gives the client its verdict, and resets the judge.
func (j *judge) Consume(data []byte, _ *eventloop.Iteration) (err error) {
	s := &j.pool.judges
	for n := 0; len(data) > 0 && err == nil; data = data[n:] {
		s.mu.Lock()
		phase, c := j.phase, j.hears
		s.mu.Unlock()
		switch {
		case j.replies.atPush(data):
			n, err = j.replies.dropPush(data)
		case phase == hearing:
			verdicts := 0
			if n, verdicts, err = c.deliverFromLane(&j.replies, data, 1); verdicts == 1 {
				j.becomes(resetting)
			}
		default:
			n, err = j.wasReset(phase, data)
		}
	}
	return err
}

// wasReset takes what the judge says while it hears nobody.
func (j *judge) wasReset(phase judgePhase, data []byte) (n int, err error) {
	n, done, err := j.replies.scan.Scan(data)
	switch head := j.replies.scan.Head(); {
	case err != nil:
	case phase == free, n < len(data), done && (head.Type != '+' || string(head.Line) != "RESET"):
		err = errUnasked
	case done:
		j.becomes(free)
	}
	return n, err
}

// MustWait is for eventloop.Reader.
func (j *judge) MustWait() bool { return false }

// Wait is for eventloop.Reader.
func (j *judge) Wait() {}

// connEnded is for connReader. A client without a verdict is as it was before its login, and so are
// those that wait, if this was the last one.
func (j *judge) connEnded(err error) {
	loopguard.MayWait()
	s := &j.pool.judges
	s.mu.Lock()
	c := j.hears
	s.all = slices.DeleteFunc(s.all, func(other *judge) bool { return other == j })
	var lost []plea
	if len(s.all) == 0 {
		lost = s.waiting.PopAll()
	}
	s.mu.Unlock()
	if c != nil {
		c.laneLost(err, 1, 0, j.replies.within())
	}
	for _, l := range lost {
		l.client.laneLost(err, 0, 1, false)
	}
	close(j.ended)
	j.pool.goroutines.Done()
}
