package proxy

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"lockproxy/internal/loopguard"
)

// serverState is how far a Server is on its way to its end. It only grows.
type serverState uint8

const (
	serverReady    serverState = iota
	serverUnready              // it will be shut down soon
	serverDraining             // sessions end as soon as they can
	serverStopped              // no session is begun
)

// roster is the sessions of a Server, and whether there may be more.
type roster struct {
	goroutines sync.WaitGroup // of sessions; nothing is added once nothing is accepted

	mu       sync.Mutex
	state    serverState           // guarded by mu
	ln       *listener             // guarded by mu; nil before Serve
	max      int                   // guarded by mu; sessions at one time
	room     func() int            // how many there are open files for
	sessions map[*session]struct{} // guarded by mu
	idleEnd  time.Time             // guarded by mu; when idle sessions end once the server drains
}

// listen calls start and returns what to accept clients from: nil once the server drains, since
// Shutdown waits for no listener that comes later. It fails if it was called before.
func (r *roster) listen(ln net.Listener, start func()) (*listener, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.ln != nil:
		return nil, fmt.Errorf("serve %s: the server serves another listener", ln.Addr())
	case r.state >= serverDraining:
		return nil, nil
	}
	r.ln = newListener(ln)
	start()
	return r.ln, nil
}

// add adds the session that begin returns, if there is room for one more; otherwise it returns nil.
// full says that there are too many.
func (r *roster) add(begin func() *session) (sess *session, full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state == serverStopped || len(r.sessions) >= min(r.max, r.room()) {
		return nil, r.state != serverStopped
	}
	sess = begin()
	if r.state == serverDraining {
		sess.idleEnd = r.idleEnd
		sess.client.setPhase(draining)
	}
	r.sessions[sess] = struct{}{}
	r.goroutines.Add(1)
	return sess, false
}

// advance changes the state, unless it is further already, and returns what there is to end.
// idleEnd is for serverDraining.
func (r *roster) advance(to serverState, idleEnd time.Time) (ln *listener, sessions []*session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state = max(r.state, to)
	if to == serverDraining {
		r.idleEnd = idleEnd
	}
	return r.ln, slices.Collect(maps.Keys(r.sessions))
}

// list returns the sessions of this moment.
func (r *roster) list() []*session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.sessions))
}

// lookEvery is how often all sessions are looked at.
const lookEvery = 5 * time.Second

// lookAfter calls look for all sessions, again and again until ctx ends.
func (r *roster) lookAfter(ctx context.Context, look func(sessions []*session, now time.Time)) {
	loopguard.MayWait()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			look(r.list(), now)
		}
	}
}

// openHomes opens homes for clients that stay without: see passthrough.Pipe.OpenOwn.
func openHomes(sessions []*session, _ time.Time) {
	for _, sess := range sessions {
		sess.pipe.OpenOwn()
	}
}

// remove removes a session that has ended; count counts what it has carried.
func (r *roster) remove(sess *session, count func()) {
	r.mu.Lock()
	delete(r.sessions, sess)
	count()
	r.mu.Unlock()
	r.goroutines.Done()
}

// SetMaxClients changes how many clients are served at one time. Clients that are connected stay.
func (r *roster) SetMaxClients(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.max = n
}

// SetUnready makes Ready say that the server is about to shut down. Clients are served as before.
func (r *roster) SetUnready() { r.advance(serverUnready, time.Time{}) }

// isUnready reports whether the server will be shut down soon, or has been.
func (r *roster) isUnready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state >= serverUnready
}
