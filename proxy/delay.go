package proxy

import (
	"bytes"
	"context"
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
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
	now := time.Now()
	s := &delayedSet{x: d.x, as: d.locks.runsAs(state).As, cmd: cmd, over: now.Add(d.server.cfg.Park)}
	for _, arg := range req.Args {
		s.args = append(s.args, bytes.Clone(arg)) // the session reads on meanwhile
	}
	key, since := string(req.Args[1]), now
	if last := d.lastDelay; last.key == key && since.Sub(last.ended) < delayMemory {
		since = last.since
	}
	w := &waiting{turn: s, woken: make(chan struct{}, 1), end: func(reply chain.Reply) {
		s.line.Leave(s.took)
		d.lastDelay = lastDelay{}
		if !s.took {
			d.lastDelay = lastDelay{key, since, time.Now()}
		}
		d.x.reply(reply.Raw)
	}}
	s.line = d.server.locks.DelaySet(state.DB, key, since, w.waker(d.client.reg))
	d.locks.waits = w
	d.locks.goOn(nil)
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
	line    *relayed.DelayedSet
	delayed bool      // the lock was held at first
	over    time.Time // when it is answered at the latest
	again   time.Time // when it asks without a sign
	reply   []byte    // the last answer; nil if there is none yet
	took    bool
}

// Due implements chain.Turn.
func (s *delayedSet) Due() time.Time {
	if s.again.Before(s.over) {
		return s.again
	}
	return s.over
}

// Go implements chain.Turn.
func (s *delayedSet) Go(ctx context.Context, inLoop bool) (chain.Reply, chain.Progress) {
	now := time.Now()
	if s.line.TakeWoken() {
		s.again = now
	}
	ended := s.delayed && (!now.Before(s.over) || s.x.in.start < s.x.in.end ||
		ctx.Err() == failure.ErrGone)
	due := !now.Before(s.again) // at first it is
	asks := due && s.line.First()
	if ended {
		asks = s.reply == nil
	}
	if asks && inLoop {
		return chain.Reply{}, chain.Asks
	}
	if asks {
		ended = s.ask() || ended || !s.delayed && !s.line.SeenHeld()
	}
	if ended {
		return chain.Reply{Kind: chain.RawReply, Raw: s.reply}, chain.Ended
	}
	if s.delayed = true; due {
		s.again = time.Now().Add(s.line.Pause())
	}
	return chain.Reply{}, chain.Sleeps
}

// ask asks the upstream. ended says that the answer is not a nil. A lock that was taken for a
// client that is disconnected is released again.
func (s *delayedSet) ask() (ended bool) {
	replied := s.x.observeForeign(s.cmd, s.args)
	raw, err := s.askSet()
	if err != nil {
		s.reply = encodeError(err)
		return true
	}
	head := resp.Head{Type: raw[0], Line: bytes.TrimSuffix(raw[1:], crlf)}
	if replied != nil {
		replied(head)
	}
	if !head.IsOK() {
		s.reply = raw
		return !bytes.HasPrefix(raw, nilReply) && raw[0] != '_'
	}
	if s.delayed && s.x.command.gone() {
		s.x.server.locks.UndoSet(s.as, string(s.args[1]), string(s.args[2]))
		state, _ := s.x.pipe.State()
		s.reply = appendReply(nil, chain.Reply{Kind: chain.NullReply}, state.Proto)
		return true
	}
	s.reply, s.took = raw, true
	return true
}

// askSet is one SET, in the order of the session's requests.
func (s *delayedSet) askSet() ([]byte, error) {
	if err := s.x.retryRoute(passthrough.Shared); err != nil {
		return nil, err
	}
	return s.x.ask(resp.AppendCommand(nil, s.args...)).Raw()
}

var (
	crlf     = []byte("\r\n")
	nilReply = []byte("$-1")
)
