package proxy

import (
	"bytes"
	"slices"

	"lockproxy/internal/resp"
)

// What Redis says to COMMAND GETKEYS.
var (
	errUnknownToRedis = []byte("-ERR Invalid command specified\r\n")
	errNumberOfArgs   = []byte("-ERR Invalid number of arguments specified for command\r\n")
	errOneWord        = []byte("-ERR wrong number of arguments for 'command|getkeys")
	errNoKeyArgs      = []byte("-ERR The command has no key arguments\r\n")
)

// keys prepares the answer to COMMAND GETKEYS and GETKEYSANDFLAGS for a lock command. The upstream
// is asked all the same: it may not know the subcommand, or the user may not be allowed to ask. For
// a command that runs another the upstream is asked about that one.
func (q *commandQuery) keys(withFlags bool) {
	call := q.args[2:]
	spec := lookup(call[0]).lock
	arity := spec.Arity()
	ours := func([]byte) []byte {
		switch {
		case arity > 0 && len(call) != arity, len(call) < -arity:
			return errNumberOfArgs
		case spec.KeyFlags() == nil:
			return errNoKeyArgs
		}
		var keys [][]byte
		for _, key := range spec.KeysOf(call) {
			keys = append(keys, q.key(string(key), spec.KeyFlags(), withFlags))
		}
		if keys == nil {
			return errNumberOfArgs
		}
		return resp.AppendAggregate(nil, '*', keys)
	}
	// No error: the upstream knows a command by that name.
	q.merge = func(raw []byte, _ byte, _ [][]byte) []byte { return raw }
	q.refused = onlyAfter(errUnknownToRedis, ours)
	if !spec.RunsAnother() || len(call) < -arity {
		return
	}
	q.ask = append(slices.Clone(q.args[:2]), call[3:]...)
	q.refused = onlyAfter(errNoKeyArgs, ours)
	if len(call) == -arity { // Redis 7.0 refuses one word alone, which can't have a key
		q.refused = func(raw []byte) []byte {
			if bytes.HasPrefix(raw, errOneWord) {
				raw = errNoKeyArgs
			}
			return onlyAfter(errNoKeyArgs, ours)(raw)
		}
	}
	q.merge = func(_ []byte, kind byte, elems [][]byte) []byte {
		key := q.key(string(call[1]), spec.KeyFlags(), withFlags)
		return resp.AppendAggregate(nil, kind, slices.Insert(elems, 0, key))
	}
}

// onlyAfter answers in the place of one error and relays all others.
func onlyAfter(expected []byte, answer func([]byte) []byte) func([]byte) []byte {
	return func(raw []byte) []byte {
		if bytes.Equal(raw, expected) {
			return answer(raw)
		}
		return raw
	}
}

func (q *commandQuery) key(key string, flags []string, withFlags bool) []byte {
	return q.encode(func(e *resp.Encoder) {
		if !withFlags {
			e.Bulk(key)
			return
		}
		e.Array(2)
		e.Bulk(key)
		e.Set(len(flags))
		for _, flag := range flags {
			e.Status(flag)
		}
	})
}
