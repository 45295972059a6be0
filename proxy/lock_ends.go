package proxy

import (
	"fmt"
	"strings"

	"lockproxy/internal/commands"
	"lockproxy/internal/foreign"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
	"lockproxy/lockcmd/held"
	"lockproxy/passthrough"
)

// Relayed commands that may end a client's session lock. Requests are examined only while clients
// have session locks.

// maxTouched bounds the session locks that are remembered of one request, and the requests of one
// transaction. If there are more, all session locks are verified.
const maxTouched = 64

// lockEnds notices when what a client asks for may end session locks.
type lockEnds struct {
	*common
	touched touches // by the transaction that may be under way
}

// mayEnd reports whether a request may end the session lock of a client.
func (e *lockEnds) mayEnd(cmd *command, args [][]byte) bool {
	if !cmd.EndsLock || !e.server.locks.AnySession() {
		return false
	}
	return !cmd.Keys.Any() || cmd.Keys.Match(args, e.server.locks.MayMatter) &&
		!(cmd.Name == "set" && foreign.MaySetNX(args))
}

// needsWatch reports whether watch must be called for a request, in its turn.
func (e *lockEnds) needsWatch(cmd *command, args [][]byte) bool {
	return e.touched != nil && (cmd.Effect == commands.Exec || cmd.Effect == commands.Discard) ||
		e.mayEnd(cmd, args)
}

// watch returns the function to call with the reply to a request. The function calls replied too,
// unless it is nil.
func (e *lockEnds) watch(
	cmd *command, args [][]byte, replied func(resp.Head),
) func(resp.Head) {
	var list touches
	switch {
	case !e.needsWatch(cmd, args):
		return replied
	case cmd.Effect == commands.Discard:
		e.touched = nil
		return replied
	case cmd.Effect == commands.Exec:
		list, e.touched = e.touched, nil
	default:
		list = e.touch(cmd, args)
	}
	return func(head resp.Head) {
		if replied != nil {
			replied(head)
		}
		if !head.IsError() {
			list.verify(e.server.locks)
		}
	}
}

// touch returns a request if it may end session locks. Within a transaction EXEC ends them, so it
// is remembered until then.
func (e *lockEnds) touch(cmd *command, args [][]byte) (list touches) {
	why := fmt.Sprintf("%s by %s", strings.ToUpper(cmd.Name), e.client.holder.Addr)
	all, found := touches{{why: why}}, 0
	if list = all; cmd.Keys.Any() {
		list = nil
		at := cmd.Keys.Positions(args, nil)
		for _, db := range e.pipe.Databases() {
			t := touch{db: db, why: why}
			for i := 0; i < len(at) && found <= maxTouched; i++ {
				if id := (names.Lock{DB: db, Key: string(args[at[i]])}); e.server.locks.Has(id) {
					t.keys = append(t.keys, id.Key)
					found++
				}
			}
			if t.keys != nil {
				list = append(list, t)
			}
		}
		if found > maxTouched {
			list = all
		}
	}
	if state, settled := e.pipe.State(); settled && !state.Has(passthrough.InMulti) {
		e.touched = nil
	}
	if e.touched = append(e.touched, list...); len(e.touched) > maxTouched {
		e.touched = all
	}
	return list
}

// touch is a request that may have ended session locks.
type touch struct {
	db   int
	keys []string // of session locks; none: of all databases
	why  string
}

type touches []touch

func (list touches) verify(locks *lockcmd.Locks) {
	for _, t := range list {
		locks.VerifySessions(t.db, t.keys, held.LostBy(t.why))
	}
}
