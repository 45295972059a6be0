package proxy

import (
	"fmt"
	"strings"

	"lockproxy/internal/commands"
	"lockproxy/internal/foreign"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
)

// Relayed commands that may end a client's session lock. Requests are examined only while clients
// have session locks.

// endsLocks are the commands that can end a lock at one of their keys: they remove it, give it
// another value, or change when it expires.
var endsLocks = func() map[string]bool {
	names := map[string]bool{}
	for name := range strings.FieldsSeq(`
			append bitfield bitop copy decr decrby del delex eval evalsha expire expireat
			fcall flushall flushdb geosearchstore getdel getex getset incr incrby
			incrbyfloat migrate move mset msetex persist pexpire pexpireat pfmerge psetex
			rename renamenx restore restore-asking sdiffstore set setbit setex setrange
			sinterstore sort sunionstore swapdb unlink zdiffstore zinterstore zrangestore
			zunionstore`) {
		names[name] = true
	}
	return names
}()

// maxTouched bounds the session locks that are remembered for one transaction.
const maxTouched = 64

// mayEndSession reports whether a request may end the session lock of a client.
func (d *dispatcher) mayEndSession(cmd *command, args [][]byte) bool {
	if !cmd.endsLock || !d.server.locks.AnySession() {
		return false
	}
	return !cmd.Keys.Any() || cmd.Keys.Match(args, d.server.locks.MayBeSession) &&
		!(cmd.Name == "set" && foreign.MaySetNX(args))
}

// concernsSessions reports whether watchLockEnds must be called for a request, in its turn.
func (d *dispatcher) concernsSessions(cmd *command, args [][]byte) bool {
	return d.touched != nil && (cmd.Effect == commands.Exec || cmd.Effect == commands.Discard) ||
		d.mayEndSession(cmd, args)
}

// watchLockEnds returns the function to call with the reply to a request. That calls replied too,
// unless it is nil.
func (d *dispatcher) watchLockEnds(
	cmd *command, args [][]byte, replied func(resp.Head),
) func(resp.Head) {
	var list touches
	switch {
	case !d.concernsSessions(cmd, args):
		return replied
	case cmd.Effect == commands.Discard:
		d.touched = nil
		return replied
	case cmd.Effect == commands.Exec:
		list, d.touched = d.touched, nil
	default:
		list = touches{d.touch(cmd, args)}
	}
	return func(head resp.Head) {
		if replied != nil {
			replied(head)
		}
		if !head.IsError() {
			list.verify(d.server.locks)
		}
	}
}

// touch returns a request that may end session locks. Within a transaction EXEC ends them, so it is
// remembered until then.
func (d *dispatcher) touch(cmd *command, args [][]byte) touch {
	state, settled := d.pipe.State()
	t := touch{db: state.DB,
		why: fmt.Sprintf("%s by %s", strings.ToUpper(cmd.Name), d.client.holder.Addr)}
	for _, i := range cmd.Keys.Positions(args, nil) {
		if d.server.locks.MayBeSession(args[i]) && len(t.keys) < maxTouched {
			t.keys = append(t.keys, string(args[i]))
		}
	}
	if settled && !state.InMulti {
		d.touched = nil
	}
	if len(d.touched) < maxTouched {
		d.touched = append(d.touched, t)
	}
	return t
}

// touch is a request that may have ended session locks.
type touch struct {
	db   int
	keys []string // none: of all databases
	why  string
}

type touches []touch

func (list touches) verify(locks *lockcmd.Locks) {
	for _, t := range list {
		locks.VerifySessions(t.db, t.keys, t.why)
	}
}
