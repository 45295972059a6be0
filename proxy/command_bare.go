package proxy

import (
	"strings"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

// withoutSubcommands makes the answer where the upstream ignores the subcommands of COMMAND, as the
// embedded store does. entries is what it answers to each: its list of commands.
func (q *commandQuery) withoutSubcommands(entries [][]byte) []byte {
	switch strings.ToLower(string(q.args[1])) {
	case "docs":
		return q.withoutDocs(nil)
	case "count":
		_, all, _ := resp.Elements(q.allInfos(nil, '*', entries))
		return q.encode(func(e *resp.Encoder) { e.Int(len(all)) })
	case "list":
		if len(q.args) > 2 {
			return resp.AppendError(nil, "ERR COMMAND LIST has no FILTERBY on this store")
		}
		var names [][]byte
		for _, entry := range entries {
			if _, parts, err := resp.Elements(entry); err == nil && len(parts) > 0 {
				names = append(names, parts[0])
			}
		}
		return q.merge(nil, '*', names)
	}
	return q.keysByTable()
}

// isEntry reports whether an answer's element is a command's entry: name, arity and more.
func isEntry(elem []byte) bool {
	kind, parts, err := resp.Elements(elem)
	return err == nil && kind == '*' && len(parts) > 2 && parts[1][0] == ':'
}

// keysByTable answers COMMAND GETKEYS and GETKEYSANDFLAGS of a lock command without the upstream.
// The keys of a command that it runs have no flags.
func (q *commandQuery) keysByTable() []byte {
	call := q.ask[2:]
	if lookup(call[0]).lock != nil {
		return q.refused(errUnknownToRedis)
	}
	var keys [][]byte
	withFlags := strings.EqualFold(string(q.args[1]), "getkeysandflags")
	row := commands.Find(call[0]).For(call)
	for _, at := range row.Keys.Positions(call, nil) {
		keys = append(keys, q.key(string(call[at]), nil, withFlags))
	}
	if keys == nil {
		return q.refused(errNoKeyArgs)
	}
	return q.merge(nil, '*', keys)
}
