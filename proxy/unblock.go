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
// whether the caller may unblock anybody. The same goes for a client whose script Redis may hold back
// (CLIENT PAUSE): Redis would take it for blocked, and before its pull request 14164 would end by a
// fault of its own. All others Redis unblocks.
func answerUnblock(x *exchange, req resp.Request) (done bool) {
	ask := req.Args
	var id int64
	var known bool
	var waits *common
	if len(req.Args) > 2 {
		if id, known = resp.ParseInt(req.Args[2]); known {
			waits = x.server.blocked.find(x.server, id)
		}
	}
	relayed := &relayedUnblock{since: time.Now()}
	switch {
	case waits != nil || known && x.server.asksItselfFor(id):
		ask = x.server.unblockRights(waits, req.Args)
	case known:
		defer x.server.blocked.relays(relayed, x.server.blockedNameOf(id))()
	}
	return x.answerAfter(func(raw []byte, _ int) []byte {
		if x.server.blocked.hasMet(relayed) {
			raw = []byte(":0\r\n")
		}
		if !bytes.Equal(raw, []byte(":0\r\n")) || !known {
			return raw
		}
		if waits == nil {
			waits = x.server.blocked.findUnnamed(x.ctx, x.server, id)
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
	name := s.blockedNameOf(id)
	return name != nil && slices.ContainsFunc(s.roster.list(), func(one *session) bool {
		return one.knownName() == name && one.pipe.AsksItself()
	})
}

// blockedClients are the clients that wait for others here, or for replicas that are to confirm a
// lock. CLIENT UNBLOCK means them, and not what the proxy asks Redis for them meanwhile.
type blockedClients struct {
	mu    sync.Mutex
	names map[*common]blockedName // guarded by mu
	of    map[any]*common         // guarded by mu; by the name
	// unnamed are those of which Redis has been, or must be, asked for the number. guarded by mu
	unnamed map[*common]struct{}
	relayed map[*relayedUnblock]struct{} // guarded by mu; those that Redis has not answered
}

// relayedUnblock is a CLIENT UNBLOCK of a client that was not blocked here when it came.
type relayedUnblock struct {
	name  any // of the client; nil if there is none
	since time.Time
	met   bool // the client began to wait here meanwhile, and nothing of its own blocked at Redis
}

// relays notes that Redis is asked. end must follow.
func (b *blockedClients) relays(u *relayedUnblock, name any) (end func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.relayed == nil {
		b.relayed = map[*relayedUnblock]struct{}{}
	}
	u.name = name
	b.relayed[u] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.relayed, u)
	}
}

// hasMet reports whether Redis can only have ended what the proxy asks it for the client itself.
func (b *blockedClients) hasMet(u *relayedUnblock) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return u.met
}

// blockedName is by what a client is found. It is the number of its home, or in a cluster, which
// knows the numbers itself, the home; nil if the client has no home, or the number is not known.
type blockedName struct {
	name  any
	times int // begin was called without an end
}

// begin notes that a session's client is blocked. end must follow. inTurn says that the session's
// goroutine calls it.
func (b *blockedClients) begin(c *common, inTurn bool) {
	b.mu.Lock()
	if b.names == nil {
		b.names, b.of = map[*common]blockedName{}, map[any]*common{}
		b.unnamed = map[*common]struct{}{}
	}
	one := b.names[c]
	one.times++
	b.names[c] = one
	b.mu.Unlock()
	if b.name(c, inTurn); inTurn {
		c.pipe.Flush(nil)
	}
}

// name notes by which number the client is known now, which is another when it has another home.
func (b *blockedClients) name(c *common, inTurn bool) {
	name, asks := c.number(inTurn)
	blocked := c.pipe.BlockedUntil()
	b.mu.Lock()
	defer b.mu.Unlock()
	one, ok := b.names[c]
	if !ok {
		return
	}
	b.forgetLocked(c, one)
	if one.name = name; name != nil {
		b.of[name] = c
		for u := range b.relayed {
			u.met = u.met || u.name == name && blocked.Before(u.since)
		}
	}
	if asks {
		b.unnamed[c] = struct{}{}
	}
	b.names[c] = one
}

// number is the name of a client. asks says that Redis is asked for it, or cannot be asked yet.
func (c *common) number(inTurn bool) (name any, asks bool) {
	if name = c.knownName(); name != nil || c.server.cfg.Locks.Cluster {
		return name, false
	}
	known, busy := c.pipe.LearnID(inTurn)
	return nil, known != nil || busy
}

// knownName is number that asks nothing.
func (c *common) knownName() any {
	if c.server.cfg.Locks.Cluster {
		if conn := c.pipe.HomeConn(); conn != nil {
			return conn
		}
	} else if id := c.pipe.ClientID(); id != 0 {
		return id
	}
	return nil
}

func (b *blockedClients) forgetLocked(c *common, one blockedName) {
	if one.name != nil && b.of[one.name] == c { // otherwise its former home is another's
		delete(b.of, one.name)
	}
	delete(b.unnamed, c)
}

// end follows begin.
func (b *blockedClients) end(c *common) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one, ok := b.names[c]
	if one.times--; ok && one.times > 0 {
		b.names[c] = one
		return
	}
	b.forgetLocked(c, one)
	delete(b.names, c)
}

// gone is end for a session that has ended, whatever it waited for.
func (b *blockedClients) gone(c *common) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forgetLocked(c, b.names[c])
	delete(b.names, c)
}

// blockedNameOf is the name of the client with a number; nil if a cluster has none with it.
func (s *Server) blockedNameOf(id int64) any {
	if !s.cfg.Locks.Cluster {
		return id
	}
	if conn := s.cfg.Upstream.ConnOf(id); conn != nil {
		return conn
	}
	return nil
}

// find returns the client with a number, nil if none that is blocked is known to have it.
func (b *blockedClients) find(s *Server, id int64) *common {
	name := s.blockedNameOf(id)
	if name == nil {
		return nil
	}
	b.mu.Lock()
	c := b.of[name]
	unnamed := slices.Collect(maps.Keys(b.unnamed))
	b.mu.Unlock()
	if c == nil {
		i := slices.IndexFunc(unnamed, func(c *common) bool { return c.pipe.ClientID() == id })
		if i < 0 {
			return nil
		}
		c = unnamed[i] // Redis has told its number since
	}
	if is, _ := c.number(false); is != name { // it has another home by now
		return nil
	}
	return c
}

// askAgain is how soon a client is looked at again whose home cannot be asked for its number yet,
// since answers to its earlier requests are missing.
const askAgain = time.Millisecond

// findUnnamed is find that waits for the numbers that are not known yet.
func (b *blockedClients) findUnnamed(ctx context.Context, s *Server, id int64) *common {
	loopguard.MayWait()
	for ctx.Err() == nil {
		if c := b.find(s, id); c != nil {
			return c
		}
		b.mu.Lock()
		var one *common
		for c := range b.unnamed {
			one = c
			break
		}
		b.mu.Unlock()
		if one == nil {
			return nil
		}
		b.awaitName(ctx, one)
	}
	return nil
}

// awaitName waits until a client's number is known, or can not be, or it is not blocked any more.
func (b *blockedClients) awaitName(ctx context.Context, c *common) {
	loopguard.MayWait()
	for ctx.Err() == nil {
		known, busy := c.pipe.LearnID(false)
		b.mu.Lock()
		_, waits := b.unnamed[c]
		b.mu.Unlock()
		switch {
		case !waits:
			return
		case c.pipe.Blocks(): // Redis would have unblocked it, and answers nothing else until then
			b.mu.Lock()
			delete(b.unnamed, c)
			b.mu.Unlock()
			return
		case known == nil && !busy:
			b.name(c, false)
			return
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
