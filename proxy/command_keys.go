package proxy

import (
	"bytes"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

// Redis answers COMMAND GETKEYS with these errors.
var (
	errUnknownToRedis = []byte("-ERR Invalid command specified\r\n")
	errNumberOfArgs   = []byte("-ERR Invalid number of arguments specified for command\r\n")
	errNoKeyArgs      = []byte("-ERR The command has no key arguments\r\n")
)

// keys prepares the answer to COMMAND GETKEYS and GETKEYSANDFLAGS for a lock command. The upstream
// is asked all the same: it may not know the subcommand, the user may not be allowed to ask, or it
// may know a command by that name.
func (q *commandQuery) keys(withFlags bool) {
	q.merge = func(raw []byte, _ byte, _ [][]byte) []byte { return raw }
	q.refused = func(raw []byte) []byte {
		if bytes.Equal(raw, errUnknownToRedis) || bytes.Equal(raw, errNoSubcommands) {
			return q.lockKeys(withFlags)
		}
		return raw
	}
}

// lockKeys is the keys of a lock command and, by the table, of the command that it runs. Those have
// no flags.
func (q *commandQuery) lockKeys(withFlags bool) []byte {
	call := q.args[2:]
	spec := lookup(call[0]).lock
	arity, flags := spec.Arity(), spec.KeyFlags()
	switch {
	case arity > 0 && len(call) != arity, len(call) < -arity:
		return errNumberOfArgs
	case flags == nil:
		return errNoKeyArgs
	}
	var keys [][]byte
	for _, key := range spec.KeysOf(call) {
		keys = append(keys, q.key(key, flags, withFlags))
	}
	if keys == nil {
		return errNumberOfArgs
	}
	if spec.RunsAnother() {
		call = call[3:]
		row := commands.Find(call[0])
		if row == commands.Unknown || row.Class == commands.Lock {
			return errUnknownToRedis
		}
		row = row.For(call)
		for _, at := range row.Keys.Positions(call, nil) {
			keys = append(keys, q.key(call[at], nil, withFlags))
		}
	}
	return resp.AppendAggregate(nil, '*', keys)
}

func (q *commandQuery) key(key []byte, flags []string, withFlags bool) []byte {
	name, set := resp.Bulk(string(key)), resp.Value{Type: '~'}
	if !withFlags {
		return q.encode(name)
	}
	for _, flag := range flags {
		set.Elems = append(set.Elems, resp.Status(flag))
	}
	return q.encode(resp.Array(name, set))
}
