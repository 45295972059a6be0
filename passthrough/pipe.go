// Package passthrough carries requests to the upstream Redis and brings its replies back, byte for byte and in order.
//
// A Pipe joins one client to one upstream connection of its own, made when the first request needs it:
//
//	session goroutine:  Relay, Call, Local  ->  buffer  ->  Flush  ->  upstream
//	reader goroutine:   upstream  ->  scan, ledger  ->  client
//
// Both directions run at once and neither holds a whole message: what is read is passed on. The ledger says what each
// reply belongs to, so that the proxy can answer a request itself in its turn (Local), keep a reply to itself (Call), and
// know the state of the connection (State). Nothing is ever sent twice: a request whose connection is lost is reported
// as such, and the client is disconnected, since its state went with the connection.
//
// Memory: two read buffers of bufSize at most and a queue of at most maxEntries, however much a client sends or
// leaves unread. A client that doesn't read stops its own Pipe and no other.
//
// This package doesn't know what a lock is, nor a command's name.
package passthrough

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"lockproxy/internal/resp"
)

const (
	minBuf     = 4 << 10
	bufSize    = 64 << 10
	maxEntries = 16 << 10 // of about 100 bytes each; a run of plain requests is one
	// linger is how long the upstream may be silent after the client has closed and all has been sent to it.
	linger = 30 * time.Second
	// maxCall bounds a reply that is kept in memory, bytes.
	maxCall = 64 << 20
)

// ErrClosed is the outcome of a Call on a Pipe that was closed by its own side.
var ErrClosed = errors.New("connection closed")

// Answer is a reply that comes later. Done is closed when it is there.
type Answer struct {
	Done chan struct{}
	raw  []byte
	err  error
}

// Value waits for the reply and decodes it. The error is an *Error if the upstream was lost first.
func (a *Answer) Value() (resp.Value, error) {
	<-a.Done
	if a.err != nil {
		return resp.Value{}, a.err
	}
	return resp.ParseValue(a.raw)
}

// Raw waits for the reply and returns it as it came.
func (a *Answer) Raw() ([]byte, error) {
	<-a.Done
	return a.raw, a.err
}

// Pipe is one session's way to the upstream. Its methods are for the one goroutine that reads the client, except Close.
type Pipe struct {
	upstream *Upstream
	client   net.Conn
	encode   func(error) []byte // makes the reply to a request that was lost
	wbuf     []byte             // not yet sent
	failed   error              // the last connect's failure, until the batch of requests that met it ends
	reader   chan struct{}

	wmu sync.Mutex // held while writing to client; before mu

	mu      sync.Mutex
	room    *sync.Cond
	ledger  ledger   // guarded by mu
	up      net.Conn // guarded by mu; nil before the first connect
	lost    error    // guarded by mu; why the upstream connection ended
	ending  bool     // guarded by mu; close the client once nothing is owed to it
	leaving bool     // guarded by mu; the client has closed: an end of the upstream is no loss
	within  bool     // guarded by mu; the client has been given a part of a reply
	pushes  []byte   // guarded by mu; wait for the end of that reply
}

// NewPipe returns a Pipe for client. It opens no connection yet. encode makes the error reply for a request that was lost
// with the connection.
func NewPipe(upstream *Upstream, client net.Conn, encode func(error) []byte) *Pipe {
	p := &Pipe{upstream: upstream, client: client, encode: encode}
	p.room = sync.NewCond(&p.mu)
	p.ledger.State = newState(upstream.Initial)
	return p
}

// Connected reports whether there is, or has been, an upstream connection.
func (p *Pipe) Connected() bool { return p.up != nil } // only this goroutine sets it

// Connect opens the upstream connection if there is none. The error is an *Error with Sent false, or a *Refused; within
// one batch of requests it is remembered, so that each of them doesn't wait for the same dead address.
func (p *Pipe) Connect(ctx context.Context) error {
	if p.Connected() {
		return nil
	}
	if p.failed != nil {
		return p.failed
	}
	up, err := p.upstream.connect(ctx, p.upstream.Initial)
	if err != nil {
		p.failed = err
		return err
	}
	p.mu.Lock()
	p.up = up
	if p.leaving {
		up.Close()
	}
	p.mu.Unlock()
	p.reader = make(chan struct{})
	go p.readReplies() // ends when up does; Close closes up and waits
	return nil
}

// Relay queues one whole request, or the first piece of one, whose reply goes to the client unchanged.
//
// The proxy itself leaves out the replies that CLIENT REPLY OFF and SKIP suppress, so that the ledger never loses count: for
// these, raw must be CLIENT REPLY ON, which asks the upstream for the same permission.
func (p *Pipe) Relay(raw []byte, e Expect) {
	p.push(entry{Expect: e})
	p.Continue(raw)
	if e.Effect == Reset {
		for _, cmd := range loginCommands(p.upstream.Initial) {
			p.push(entry{kind: hidden})
			p.wbuf = resp.AppendCommand(p.wbuf, cmd...)
		}
	}
}

// Continue queues a further piece of the request that Relay began.
func (p *Pipe) Continue(raw []byte) {
	p.wbuf = append(p.wbuf, raw...)
	if len(p.wbuf) >= bufSize {
		p.Flush()
	}
}

// Withdraw says that the request that Relay began will never be complete, since the client's bytes turned out not to be one.
// Nothing may be sent behind it.
func (p *Pipe) Withdraw() {
	p.mu.Lock()
	p.ledger.withdraw()
	p.mu.Unlock()
}

// Call sends a request of the proxy's own and keeps its reply from the client.
func (p *Pipe) Call(raw []byte) *Answer {
	a := &Answer{Done: make(chan struct{})}
	p.push(entry{kind: captured, answer: a})
	p.wbuf = append(p.wbuf, raw...)
	p.Flush()
	return a
}

// Replace sends a request and gives the client text in place of its reply.
func (p *Pipe) Replace(raw, text []byte) {
	p.push(entry{kind: replaced, local: text})
	p.wbuf = append(p.wbuf, raw...)
}

// Barrier's Answer is there when all that was asked before has been answered to the client.
func (p *Pipe) Barrier() *Answer {
	a := &Answer{Done: make(chan struct{})}
	p.mu.Lock()
	if p.ledger.empty() {
		close(a.Done)
	} else {
		p.ledger.push(entry{kind: marker, answer: a})
	}
	p.mu.Unlock()
	p.Flush()
	return a
}

// Local gives the client a reply of the proxy's own, in its turn behind all replies still to come.
func (p *Pipe) Local(text []byte) {
	p.wmu.Lock()
	defer p.releaseClient()
	p.mu.Lock()
	if !p.ledger.empty() || p.within { // a message may be on its way though nothing is owed
		p.ledger.push(entry{kind: local, local: text})
		p.mu.Unlock()
		return
	}
	muted := p.ledger.muted()
	p.ledger.skipNext = false
	p.mu.Unlock()
	if !muted {
		p.client.Write(text) // a failure shows when the client is read
	}
}

// Push gives the client bytes that answer nothing, between two replies. Unlike the other methods it may be called from any
// goroutine. ok is false if too much waits for the end of the reply that the client is being given.
func (p *Pipe) Push(text []byte) (ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pushes)+len(text) > maxPushes {
		return false
	}
	p.pushes = append(p.pushes, text...)
	if p.wmu.TryLock() { // else whoever writes now sends it afterwards
		p.mu.Unlock()
		p.releaseClient()
		p.mu.Lock()
	}
	return true
}

// maxPushes bounds what waits in pushes, bytes.
const maxPushes = 64 << 10

// releaseClient unlocks wmu, having sent what Push has left in the meantime, and closes the client if it is time for that.
func (p *Pipe) releaseClient() {
	for {
		p.mu.Lock()
		text := p.pushes
		if len(text) == 0 || p.within {
			closing := p.ending && p.nothingOwed()
			p.wmu.Unlock()
			p.mu.Unlock()
			if closing {
				p.client.Close()
			}
			return
		}
		p.pushes = nil
		p.mu.Unlock()
		p.client.Write(text)
	}
}

// push notes what the client is owed, and waits while that is too much.
func (p *Pipe) push(e entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.ledger.len() >= maxEntries && p.lost == nil {
		p.flushLocked()
		p.room.Wait()
	}
	p.ledger.push(e)
	if p.lost != nil {
		p.settleLost()
	}
}

// Flush sends what is queued.
func (p *Pipe) Flush() {
	p.failed = nil
	if len(p.wbuf) == 0 || p.up == nil {
		p.wbuf = p.wbuf[:0]
		return
	}
	if _, err := p.up.Write(p.wbuf); err != nil {
		p.up.Close() // the reader reports the loss
	}
	if cap(p.wbuf) > bufSize*2 {
		p.wbuf = nil
	}
	p.wbuf = p.wbuf[:0]
}

// flushLocked flushes with mu held by the caller, and releases it meanwhile.
func (p *Pipe) flushLocked() {
	p.mu.Unlock()
	p.Flush()
	p.mu.Lock()
}

// State returns the state of the connection as of the replies that have come; settled says that no reply which may change
// it is still to come.
func (p *Pipe) State() (s State, settled bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ledger.State, p.ledger.effects == 0
}
