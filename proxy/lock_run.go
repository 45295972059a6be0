package proxy

// Lock commands that stand side by side in what a client has sent, as those of a program whose threads share one connection do. Each needs an answer
// of the upstream before its own can be given, but none needs another's: they are asked together, and cost one way to the upstream and back
// instead of one each.

import (
	"bytes"
	"slices"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// maxLockRun is how many are asked together.
const maxLockRun = 64

// lockStep is a lock command that has begun. It runs on a coroutine of the session's goroutine, so never beside anything else of the session, up
// to where it has asked the upstream.
type lockStep struct {
	spec   *lockcmd.Spec
	key    []byte
	grant  uint64              // the number of the lock that it was given; 0 if none
	reply  lockcmd.Reply       // once it has run to its end
	answer *passthrough.Answer // what it waits for; nil if for nothing
	on     *coroutine
}

// joinsLocks begins a lock command together with those before it, or with those behind it if it concerns a lock that one of them concerns too: these are
// answered first. It reports false, and doesn't begin it, if the command must be run by itself: it is alone, may wait, or the state of the
// connection must be looked at first.
func (s *session) joinsLocks(req resp.Request) bool {
	alone := len(s.locking) == 0 && s.start+len(req.Raw) == s.end
	if alone || len(req.Args) == 0 || s.streaming {
		return false
	}
	cmd := lookup(req.Args[0])
	if cmd.lock == nil || cmd.way != passthrough.Shared || !cmd.lock.AsksOnce(req.Args) || s.drains() {
		return false
	}
	if len(s.locking) == maxLockRun || slices.ContainsFunc(s.locking, func(st *lockStep) bool { return bytes.Equal(st.key, req.Args[1]) }) {
		s.endLocks()
	}
	if len(s.locking) == 0 {
		s.endRun()
		if state, settled := s.pipe.State(); !settled || !state.Plain() || !state.Trusted {
			return false
		}
	}
	s.meter.counted(cmd.kind)
	s.start += len(req.Raw)
	if s.beginLock(cmd.lock, req); s.locking[len(s.locking)-1].answer == nil {
		s.endLocks() // it is over, and may have taken long, as with --min-replicas
	}
	return true
}

// beginLock runs a lock command up to where it waits for the upstream, or to its end.
func (s *session) beginLock(spec *lockcmd.Spec, req resp.Request) {
	args := slices.Clone(req.Args) // the framer uses its own again
	st := &lockStep{spec: spec, key: args[1]}
	state, _ := s.pipe.State()
	s.identity = state.Identity
	st.on = s.server.coroutines.take()
	s.locking = append(s.locking, st)
	s.beginning = st
	before := s.holder.Granted()
	st.on.start(func() { st.reply = s.timed(spec, args) }) // ends with resume, which endLocks calls
	s.beginning = nil
	st.noteGrant(s, before)
}

// noteGrant takes note of the lock that was given since before.
func (st *lockStep) noteGrant(s *session, before uint64) {
	if number := s.holder.Granted(); number != before {
		st.grant = number
	}
}

// endLocks gives the client the answers of the lock commands that have begun.
func (s *session) endLocks() {
	if len(s.locking) == 0 {
		return
	}
	if s.locking[0].answer != nil { // else none could be asked, and that the connect has failed is to be remembered
		s.pipe.Flush()
	}
	var text []byte
	for _, st := range s.locking {
		state, _ := s.pipe.State()
		if st.answer != nil {
			text = s.giveBefore(st.answer, text)
			s.await(st.answer)
			before := s.holder.Granted()
			st.on.resume()
			st.noteGrant(s, before)
		}
		s.server.coroutines.put(st.on)
		text = append(text, encodeReply(st.spec.Name, st.reply, state.Proto)...)
		if st.grant != 0 {
			s.holder.Sent(st.grant, s.sent(len(text)))
		}
	}
	clear(s.locking)
	s.locking = s.locking[:0]
	if s.drains() {
		s.hold(true) // it may have begun to meanwhile
	}
	s.pipe.Local(text)
}

// giveBefore gives the client text, and returns what is left of it, if an answer is not there yet: whoever has a lock need not wait for another's.
func (s *session) giveBefore(answer *passthrough.Answer, text []byte) (left []byte) {
	select {
	case <-answer.Done:
		return text
	default:
	}
	if len(text) > 0 && s.pipe.GiveNow(text) {
		return nil
	}
	return text
}

// ask sends a script's request for the lock command that is beginning, and returns once its answer is there.
func (s *session) ask(st *lockStep, raw []byte) (resp.Value, error) {
	s.beginning = nil // what else it asks is asked by itself
	if err := s.connect(passthrough.Shared); err != nil {
		return resp.Value{}, err
	}
	st.answer = s.pipe.Ask(raw)
	st.on.wait()
	return st.answer.Value()
}
