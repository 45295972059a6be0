package proxy

import "lockproxy/internal/commands"

// batch is consecutive requests in a session's buffer that are relayed together: a pipeline costs
// the proxy hardly more than one request.
type batch struct {
	requests int
	bytes    int // they end at the input's start
	last     *command
	name     [commands.MaxName]byte // of last, as the client wrote it
	length   int                    // of name
}

// maxBatch bounds the requests that are relayed as one, so that a session waits for room in time.
const maxBatch = 256

// lookup finds a command, faster if it is the same as the one before.
func (b *batch) lookup(name []byte) *command {
	if b.last != nil && string(name) == string(b.name[:b.length]) {
		return b.last
	}
	cmd := lookup(name)
	if len(name) <= commands.MaxName {
		b.last, b.length = cmd, copy(b.name[:], name)
	}
	return cmd
}
