package proxy

import (
	"bytes"
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/script"
	"lockproxy/passthrough"
)

// delayer delays the answers to SETs of a session.
type delayer struct {
	locks *locker
	last  lastDelay
}

// delays reports whether the nil with which Redis answers a request can be delayed (--park).
func (d *delayer) delays(cmd *command, args [][]byte) bool {
	cfg := &d.locks.server.cfg
	return cfg.Park > 0 && cmd.Foreign == foreign.Sets && foreign.SetsLock(args) &&
		keyname.Match(cfg.ParkKeys, string(args[1]))
}

// delaySet asks for a lock by SET key value NX PX. While the lock is held, and nothing more comes
// from the client, the answer is delayed by at most --park. It reports false if the request must be
// relayed as any other.
func (d *delayer) delaySet(cmd *command, req resp.Request) (done bool) {
	x := d.locks.x
	if x.in.start < x.in.end || x.client.drains() || x.route(passthrough.Shared, nil) != nil {
		return false
	}
	state := x.awaitState()
	if !state.Plain() {
		return false
	}
	now := time.Now()
	s := &delayedSet{x: x, as: d.locks.runsAs(state).As, cmd: cmd, over: now.Add(x.server.cfg.Park)}
	for _, arg := range req.Args {
		s.args = append(s.args, bytes.Clone(arg)) // the session reads on meanwhile
	}
	key, since := string(req.Args[1]), now
	if last := d.last; last.key == key && since.Sub(last.ended) < delayMemory {
		since = last.since
	}
	s.line = x.server.locks.DelaySet(state.DB, key, since, x.Wake)
	s.sleep = &lockcmd.Step{Asks: lockcmd.Turn{}, Finish: s.goOn}
	d.locks.start(batchedLock{question: question{Step: s.sleep, again: true}, cmd: cmd, alone: true,
		end: func(reply lockcmd.Reply) {
			s.line.Leave(s.took)
			d.last = lastDelay{}
			if !s.took {
				d.last = lastDelay{key, since, time.Now()}
			}
			x.reply(reply.Raw)
		}}, nil)
	return true
}

// lastDelay is the last SET of a session that was delayed and refused. A client that asks again
// soon has its old place in line.
type lastDelay struct {
	key          string
	since, ended time.Time
}

const delayMemory = 500 * time.Millisecond

// delayedSet is a SET of one session whose answer can be delayed.
type delayedSet struct {
	x       *exchange
	as      names.Identity
	args    [][]byte
	cmd     *command
	line    *lockcmd.DelayedSet
	sleep   *lockcmd.Step
	delayed bool      // the lock was held at first
	over    time.Time // when it is answered at the latest
	again   time.Time // when it asks without a sign
	reply   []byte    // the last answer; nil if there is none yet
	took    bool
}

// goOn takes on a SET that sleeps.
func (s *delayedSet) goOn(_ script.Answer, why error) (lockcmd.Reply, *lockcmd.Step) {
	now := time.Now()
	if s.line.TakeWoken() {
		s.again = now
	}
	ended := s.delayed && (!now.Before(s.over) || s.x.in.start < s.x.in.end || why == failure.ErrGone)
	due := !now.Before(s.again) // at first it is
	asks := due && s.line.First()
	if ended {
		asks = s.reply == nil
	}
	if !asks {
		return s.rest(ended, due)
	}
	replied := s.x.observeForeign(s.cmd, s.args)
	ask := lockcmd.Commands{List: [][][]byte{s.args}, Reads: true}
	return lockcmd.Reply{}, &lockcmd.Step{Asks: ask,
		Finish: func(a script.Answer, err error) (lockcmd.Reply, *lockcmd.Step) {
			return s.rest(s.answered(a, err, replied) || ended || !s.delayed && !s.line.SeenHeld(), due)
		}}
}

// rest ends the SET, or has it sleep.
func (s *delayedSet) rest(ended, asked bool) (lockcmd.Reply, *lockcmd.Step) {
	if ended {
		return lockcmd.Reply{Raw: s.reply}, nil
	}
	if s.delayed = true; asked {
		s.again = time.Now().Add(s.line.Pause())
	}
	if s.sleep.Until = s.over; s.again.Before(s.over) {
		s.sleep.Until = s.again
	}
	return lockcmd.Reply{}, s.sleep
}

// answered takes the upstream's answer. ended says that it is not a nil. A lock that was taken for a
// client that is disconnected is released again.
func (s *delayedSet) answered(
	a script.Answer, err error, replied func(resp.Head),
) (ended bool) {
	if err != nil {
		s.reply = encodeError(err)
		return true
	}
	raw := a.Raw[0]
	head := resp.Head{Type: raw[0], Line: bytes.TrimSuffix(raw[1:], crlf)}
	if replied != nil {
		replied(head)
	}
	if !head.IsOK() {
		s.reply = raw
		return !bytes.HasPrefix(raw, nilReply) && raw[0] != '_'
	}
	if s.delayed && s.x.in.gone() {
		s.x.server.locks.UndoSet(s.as, string(s.args[1]), string(s.args[2]))
		state, _ := s.x.pipe.State()
		s.reply = resp.AppendValue(nil, resp.Null, state.Proto)
		return true
	}
	s.reply, s.took = raw, true
	return true
}

var (
	crlf     = []byte("\r\n")
	nilReply = []byte("$-1")
)
