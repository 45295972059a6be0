package proxy

import (
	"bytes"
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/relayed"
	"lockproxy/passthrough"
)

// delays reports whether the nil with which Redis answers a request can be delayed (--park).
func (d *dispatcher) delays(cmd *command, args [][]byte) bool {
	cfg := &d.server.cfg
	return cfg.Park > 0 && cmd.Foreign == foreign.Sets && foreign.SetsLock(args) &&
		keyname.Match(cfg.ParkKeys, string(args[1]))
}

// delaySet asks for a lock by SET key value NX PX. While the lock is held, and nothing more comes
// from the client, the answer is delayed by at most --park. It reports false if the request must be
// relayed as any other.
func (d *dispatcher) delaySet(cmd *command, req resp.Request) (done bool) {
	if d.in.start < d.in.end || d.client.drains() || d.x.route(passthrough.Shared, nil) != nil {
		return false
	}
	state := d.x.awaitState()
	if !state.Plain() {
		return false
	}
	s := &delayedSet{x: d.x, as: d.locks.runsAs(state).As, raw: routeOf(cmd, req).Raw,
		args: req.Args, cmd: cmd, over: time.NewTimer(d.server.cfg.Park)}
	defer s.over.Stop()
	key, since := string(req.Args[1]), time.Now()
	if last := d.lastDelay; last.key == key && since.Sub(last.ended) < delayMemory {
		since = last.since
	}
	s.line = d.server.locks.DelaySet(state.DB, key, since)
	reply, took := s.answer()
	s.line.Leave(took)
	d.lastDelay = lastDelay{}
	if !took {
		d.lastDelay = lastDelay{key, since, time.Now()}
	}
	d.x.reply(reply)
	d.x.command.end()
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
	x     *exchange
	as    names.Identity
	raw   []byte
	args  [][]byte
	cmd   *command
	line  *relayed.DelayedSet
	over  *time.Timer
	reply []byte // the last answer; nil if there is none yet
}

// answer returns the answer for the client, and whether the client has the lock.
func (s *delayedSet) answer() (reply []byte, took bool) {
	loopguard.MayWait()
	if s.line.First() {
		if ended, took := s.ask(); ended || !s.line.SeenHeld() {
			return s.reply, took
		}
	}
	s.x.command.begin(0)
	again := time.NewTimer(s.line.Pause())
	defer again.Stop()
	for ended := false; !ended; {
		select {
		case <-s.line.Woken():
		case <-again.C:
		case <-s.x.command.watch.came:
			ended = true
		case <-s.x.command.watch.gone:
			ended = true
		case <-s.over.C:
			ended = true
		}
		again.Reset(s.line.Pause())
		if ended && s.reply != nil || !ended && !s.line.First() {
			continue
		}
		if over, took := s.ask(); over {
			return s.reply, took
		}
	}
	return s.reply, false
}

// ask asks the upstream. ended says that the answer is not a nil. A lock that was taken for a
// client that is disconnected is released again.
func (s *delayedSet) ask() (ended, took bool) {
	replied := s.x.observeForeign(s.cmd, s.args)
	raw, err := s.askSet()
	if err != nil {
		s.reply = encodeError(err)
		return true, false
	}
	head := resp.Head{Type: raw[0], Line: bytes.TrimSuffix(raw[1:], crlf)}
	if replied != nil {
		replied(head)
	}
	if !head.IsOK() {
		s.reply = raw
		return !bytes.HasPrefix(raw, nilReply) && raw[0] != '_', false
	}
	if s.x.command.watch != nil && s.x.command.gone() { // it was delayed
		s.x.server.locks.UndoSet(s.as, string(s.args[1]), string(s.args[2]))
		state, _ := s.x.pipe.State()
		s.reply = appendReply(nil, chain.Reply{Kind: chain.NullReply}, state.Proto)
		return true, false
	}
	s.reply = raw
	return true, true
}

// askSet is one SET, in the order of the session's requests.
func (s *delayedSet) askSet() ([]byte, error) {
	if err := s.x.retryRoute(passthrough.Shared); err != nil {
		return nil, err
	}
	return s.x.ask(s.raw).Raw()
}

var (
	crlf     = []byte("\r\n")
	nilReply = []byte("$-1")
)
