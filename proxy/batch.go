package proxy

import (
	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
	"lockproxy/passthrough"
)

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

// addToBatch adds a request to the batch, if nothing needs to be decided about it, and in an event
// loop if that does not make it wait.
func (d *dispatcher) addToBatch(req resp.Request, it *eventloop.Iteration) bool {
	if len(req.Args) == 0 || req.Inline || req.Loose || d.streaming ||
		d.batch.bytes+len(req.Raw) > maxShared {
		return false
	}
	cmd := d.batch.lookup(req.Args[0])
	if !cmd.batchable() || d.x.observesForeign(cmd, req.Args) ||
		d.ends.mayEnd(cmd, req.Args) {
		return false
	}
	if d.batch.requests == maxBatch && !d.relayBatch(it) {
		return false
	}
	d.began(cmd, cmd.Command)
	d.in.start += len(req.Raw)
	d.batch.requests++
	d.batch.bytes += len(req.Raw)
	return true
}

// relayBatch relays the batch. In an event loop it reports false if it would have to wait.
func (d *dispatcher) relayBatch(it *eventloop.Iteration) (done bool) {
	n := d.batch.requests
	if n == 0 {
		return true
	}
	raw := d.in.buf[d.in.start-d.batch.bytes : d.in.start]
	err := d.x.send(passthrough.Request{Raw: raw, N: n, Way: passthrough.Shared}, it)
	if err == passthrough.ErrWaits {
		return false
	}
	d.batch.requests, d.batch.bytes = 0, 0
	if err != nil {
		for range n {
			d.x.reply(encodeError(err))
		}
	}
	return true
}
