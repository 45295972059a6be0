package proxy

import "lockproxy/internal/resp"

// commandQuery is one COMMAND request that concerns the lock commands. It is pure: no I/O.
type commandQuery struct {
	args  [][]byte // as the client sent them
	ask   [][]byte // what the upstream is asked
	proto int
	// merge makes the answer out of the upstream's, which is no error. elems are its elements.
	merge func(raw []byte, kind byte, elems [][]byte) []byte
	// refused makes the answer out of an error of the upstream. nil relays that.
	refused func(raw []byte) []byte
}

// encode encodes a value for the client.
func (q *commandQuery) encode(v resp.Value) []byte { return resp.AppendValue(nil, v, q.proto) }

// errNoSubcommands is for requests that only subcommands of COMMAND answer, where the upstream
// ignores these.
var errNoSubcommands = []byte("-ERR the embedded store does not know this form of COMMAND\r\n")

func isLockName(name []byte) bool { return lookup([]byte(bulkText(name))).lock != nil }

// bulkText is the text of a raw bulk string; "" if it is something else.
func bulkText(raw []byte) string {
	v, err := resp.ParseValue(raw)
	if err != nil || v.Type != '$' {
		return ""
	}
	return string(v.Text)
}
