package proxy

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/resp"
)

// answerUnblock is CLIENT UNBLOCK id [TIMEOUT|ERROR]. A client whose number is that of one which
// waits here for a lock is unblocked here. Redis does not know that it waits: it is only asked
// whether the caller may unblock anybody. The same goes for a client whose script Redis may hold
// back (CLIENT PAUSE): Redis would take it for blocked, and before its pull request 14164 would end
// by a fault of its own. All others Redis unblocks.
func answerUnblock(x *exchange, req resp.Request) (done bool) {
	ask := req.Args
	var id int64
	var known bool
	var waits *common
	if len(req.Args) > 2 {
		if id, known = resp.ParseInt(req.Args[2]); known {
			waits = x.server.blocked.find(id)
		}
	}
	var met func() bool
	switch {
	case waits != nil || x.server.asksItselfFor(id):
		ask = x.server.unblockRights(waits, req.Args)
	case known:
		met = x.server.blocked.relays(id)
		defer met() // perhaps there is no answer
	}
	return x.answerAfter(func(raw []byte, _ int) []byte {
		if met != nil && met() {
			raw = []byte(":0\r\n")
		}
		if !bytes.Equal(raw, []byte(":0\r\n")) || !known {
			return raw
		}
		if waits == nil {
			waits = x.server.blocked.findUnnumbered(x.ctx, id)
		}
		withError := len(req.Args) > 3 && strings.EqualFold(string(req.Args[3]), "ERROR")
		if waits != nil && x.server.locks.Unblock(&waits.client.holder, withError) {
			return []byte(":1\r\n")
		}
		return raw
	}, ask)
}

// unblockRights is a request that is answered 0 if the caller of CLIENT UNBLOCK may do that, and as
// CLIENT UNBLOCK otherwise: no client has the number 0. In a cluster it goes where the lock is that
// the client waits for, since the other nodes can be silent.
func (s *Server) unblockRights(waits *common, args [][]byte) [][]byte {
	if waits != nil && s.cfg.Locks.Cluster {
		if key, ok := s.locks.WaitsFor(&waits.client.holder); ok {
			return append([][]byte{[]byte("LOCKPROXY.UNBLOCK"), []byte(key)}, args[3:]...)
		}
	}
	return append([][]byte{args[0], args[1], []byte("0")}, args[3:]...)
}

// asksItselfFor reports whether what Redis runs for the client with a number is the proxy's.
func (s *Server) asksItselfFor(id int64) bool {
	for _, one := range s.roster.list() {
		if one.isNumbered(id) && one.pipe.Status().AsksItself {
			return true
		}
	}
	return false
}

// isNumbered reports whether the client is known to have a number.
func (c *common) isNumbered(id int64) bool { return id != 0 && c.pipe.Status().ID == id }

// blockedClients are the clients that wait for others here, or for replicas that are to confirm a
// lock. CLIENT UNBLOCK means them, and not what the proxy asks Redis for them meanwhile.
type blockedClients struct {
	mu      sync.Mutex
	times   map[*common]int              // guarded by mu; begin was called without an end
	relayed map[*relayedUnblock]struct{} // guarded by mu; those that Redis has not answered
}

// relayedUnblock is a CLIENT UNBLOCK of a client that was not blocked here when it came.
type relayedUnblock struct {
	id    int64 // of the client
	since time.Time
	met   bool // guarded by blockedClients.mu; see meets
}

// meets notes whether a client that is blocked here is the one, and has begun to be since. Then
// Redis can only have ended what the proxy asks it for the client, unless something of the client's
// own blocked there. blockedClients.mu is held.
func (u *relayedUnblock) meets(c *common) {
	u.met = u.met || c.isNumbered(u.id) && c.pipe.Status().BlockedUntil.Before(u.since)
}

// relays notes that Redis is asked to unblock a client. met must be called once it has answered,
// and reports whether Redis can only have ended what the proxy asks it for the client itself.
func (b *blockedClients) relays(id int64) (met func() bool) {
	u := &relayedUnblock{id: id, since: time.Now()}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.relayed == nil {
		b.relayed = map[*relayedUnblock]struct{}{}
	}
	b.relayed[u] = struct{}{}
	return func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.relayed, u)
		for c := range b.times {
			u.meets(c)
		}
		return u.met
	}
}

// begin notes that a session's client is blocked. end must follow. inTurn says that the session's
// goroutine calls it.
func (b *blockedClients) begin(c *common, inTurn bool) {
	b.mu.Lock()
	if b.times == nil {
		b.times = map[*common]int{}
	}
	b.times[c]++
	b.mu.Unlock()
	if c.pipe.LearnID(inTurn); inTurn {
		c.pipe.Flush(nil)
	}
}

// end follows begin.
func (b *blockedClients) end(c *common) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for u := range b.relayed {
		u.meets(c)
	}
	if b.times[c]--; b.times[c] <= 0 {
		delete(b.times, c)
	}
}

// gone is end for a session that has ended, whatever it waited for.
func (b *blockedClients) gone(c *common) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.times, c)
}

func (b *blockedClients) list() []*common {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.times))
}

// find returns the client with a number, nil if none that is blocked is known to have it.
func (b *blockedClients) find(id int64) *common {
	for _, c := range b.list() {
		if c.isNumbered(id) {
			return c
		}
	}
	return nil
}

// askAgain is how soon a client is looked at again whose home cannot be asked for its number yet,
// since answers to its earlier requests are missing.
const askAgain = time.Millisecond

// findUnnumbered is find that waits for the numbers that are not known yet.
func (b *blockedClients) findUnnumbered(ctx context.Context, id int64) *common {
	loopguard.MayWait()
	for {
		known, busy := b.learnNext()
		if c := b.find(id); c != nil || known == nil && !busy || ctx.Err() != nil {
			return c
		}
		again := time.NewTimer(askAgain)
		select {
		case <-known: // nil while it is busy
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
}

// learnNext has Redis asked for the number of a client that is blocked here, if there is one whose
// number is not known. If something blocks the client at Redis, which answers nothing else until
// then, Redis itself has unblocked the client.
func (b *blockedClients) learnNext() (known <-chan struct{}, busy bool) {
	for _, c := range b.list() {
		if known, busy = c.pipe.LearnID(false); (known != nil || busy) && !c.pipe.Blocks() {
			return known, busy
		}
	}
	return nil, false
}
