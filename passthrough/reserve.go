package passthrough

// How sessions that the upstream has let in are served though it would not let them in once more, because their password has been changed
// since: by connections that were logged in before, as Redis serves a client by the one that it has. Each login keeps a reserve of them. A
// session that sends AUTH gets nothing from a reserve before the upstream itself has said OK.

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"time"
)

// login is whom a connection is logged in as. It stays so when the connection's database or protocol changes.
type login struct {
	user, password string
	loggedIn       bool
}

func loginOf(id Identity) login { return login{id.User, id.Password, id.LoggedIn} }

// group is what there is of one login. Lanes.mu guards all of it.
type group struct {
	login
	like     Identity           // of the session that came last: how connections for the reserve are set up
	sessions int                // that have been let in
	owned    int                // of these, those with a connection of their own
	pinning  int                // of those, the ones that don't have it yet
	peak     int                // the most that owned has been
	resting  map[*Pipe]struct{} // of these, those that have left their own connection, which has logged in, and used none since
	lanes    int
	idle     []*spare // in the order in which they were left
	line     []chan *spare
	filling  bool      // somebody opens connections for the reserve
	failed   time.Time // when that last failed, or the upstream last refused this login
	stale    bool      // the upstream has refused this login since it last took it: no connection can be replaced
}

// refusalPause is how long after a refused login spares are used first, and none are opened in reserve.
const refusalPause = time.Second

// halfClosed is how much longer a session stays in line whose client has closed: it may have closed only its sending side.
const halfClosed = 250 * time.Millisecond

// groupLocked returns the group that id belongs to, a new one if there is none. mu is held.
func (ls *Lanes) groupLocked(id Identity) *group {
	key := loginOf(id)
	g := ls.groups[key]
	if g == nil {
		g = &group{login: key, like: id, resting: map[*Pipe]struct{}{}}
		ls.groups[key] = g
	}
	return g
}

// enterLocked says that p, which has been let in, is served as id now. mu is held.
func (ls *Lanes) enterLocked(p *Pipe, id Identity) *group {
	g := ls.groupLocked(id)
	g.like = id
	if p.group != g {
		g.sessions++
		ls.quitLocked(p)
		p.group = g
	}
	delete(g.resting, p)
	return g
}

// own says that p, which has been let in as id, is about to have a connection of its own. The session must disown it.
func (ls *Lanes) own(p *Pipe, id Identity) *group {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	g := ls.enterLocked(p, id)
	g.owned++
	g.pinning++
	g.peak = max(g.peak, g.owned)
	return g
}

// tried says that a session that owns a connection, as it said, has it now, or has disowned it since it can't have one.
func (ls *Lanes) tried(g *group) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	g.pinning--
}

func (ls *Lanes) disown(g *group) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	g.owned--
	ls.topUpLocked(g)
	ls.dropLocked(g)
}

// quit says that a session has ended.
func (ls *Lanes) quit(p *Pipe) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.quitLocked(p)
}

func (ls *Lanes) quitLocked(p *Pipe) {
	g := p.group
	if g == nil {
		return
	}
	p.group = nil
	g.sessions--
	delete(g.resting, p)
	ls.expireLocked(g)
	ls.dropLocked(g)
}

// dropLocked forgets a group of nothing. mu is held.
func (ls *Lanes) dropLocked(g *group) {
	if g.sessions == 0 && g.owned == 0 && g.lanes == 0 && len(g.idle) == 0 && len(g.line) == 0 && !g.filling && ls.groups[g.login] == g {
		delete(ls.groups, g.login)
	}
}

// wanted is how many spares g should have: as many as would serve all who have ever had a connection of their own at once, and reserve
// more, but no more than one for each session that has none.
func (ls *Lanes) wanted(g *group) int {
	if ls.reserve == 0 {
		return 0
	}
	return max(0, min(ls.reserve+g.peak, g.sessions)-g.owned)
}

// worthKeeping is how many spares g should keep of those that there are: where none can be replaced, one for each session that has none.
func (ls *Lanes) worthKeeping(g *group) int {
	if ls.reserve > 0 && g.stale {
		return max(0, g.sessions-g.owned)
	}
	return ls.wanted(g)
}

// bereavedLocked returns the sessions whose login has ended with the last connection that they had to do with. mu is held.
func (ls *Lanes) bereavedLocked(g *group) (ended map[*Pipe]struct{}) {
	if g.lanes == 0 && len(g.idle) == 0 {
		ended, g.resting = g.resting, map[*Pipe]struct{}{}
	}
	return ended
}

// topUpLocked has connections opened until g has its reserve. mu is held.
func (ls *Lanes) topUpLocked(g *group) {
	if g.filling || ls.closed || len(g.idle) >= ls.wanted(g) || ls.idle >= ls.maxIdle || time.Since(g.failed) < refusalPause {
		return
	}
	g.filling = true
	ls.running.Add(1)
	go func() { // ends when the reserve is full or can't be filled, or when Close is called, which waits for it
		defer ls.running.Done()
		for ls.fill(g) {
		}
	}()
}

// fill opens one connection for g's reserve, and reports whether another one is needed.
func (ls *Lanes) fill(g *group) (more bool) {
	ls.mu.Lock()
	more = !ls.closed && len(g.idle) < ls.wanted(g) && ls.idle < ls.maxIdle
	g.filling = more
	id := g.like
	ls.dropLocked(g)
	ls.mu.Unlock()
	if !more {
		return false
	}
	ctx, cancel := context.WithTimeout(ls.ctx, ls.dialTimeout)
	defer cancel()
	conn, err := ls.connect(ctx, id)

	ls.mu.Lock()
	defer ls.mu.Unlock()
	switch {
	case err != nil:
		var refused *Refused
		g.filling, g.failed = false, time.Now()
		g.stale = g.stale || errors.As(err, &refused)
		ls.dropLocked(g)
		return false
	case ls.closed:
		conn.Close()
	default:
		g.stale = false
		ls.keepLocked(g, conn, Setup{Identity: id})
	}
	return true
}

// connect opens a connection for sessions that have been let in as id, which is logged in with another password of their user's if theirs is not
// valid any more and another is known. If the upstream demands a login of them now it fails.
func (ls *Lanes) connect(ctx context.Context, id Identity) (net.Conn, error) {
	conn, err := ls.connectAs(ctx, id)
	var refused *Refused
	if errors.As(err, &refused) {
		if conn, ok := ls.connectRenewed(ctx, id); ok {
			return conn, nil
		}
	}
	return conn, err
}

func (ls *Lanes) connectAs(ctx context.Context, id Identity) (net.Conn, error) {
	conn, err := ls.upstream.connect(ctx, id)
	if err != nil || id.LoggedIn {
		return conn, err
	}
	replies, err := ask(ctx, conn, []string{probe})
	switch {
	case err != nil:
		err = &Error{Addr: ls.upstream.Addr, Err: err}
	case strings.HasPrefix(replies[0], noAuth):
		err = &Refused{Addr: ls.upstream.Addr, Step: probe, Reply: replies[0][1:]}
	default:
		return conn, nil
	}
	conn.Close()
	return nil, err
}

// noAuth begins the upstream's answer to those of whom it demands a login.
const noAuth = "-NOAUTH"

// demandsLogin reports whether a connect failed because nobody is let in any more without a login.
func demandsLogin(err error) bool {
	var refused *Refused
	return errors.As(err, &refused) && strings.HasPrefix("-"+refused.Reply, noAuth)
}

// obtain returns a connection that is set up so, for sessions that have been let in. If the upstream doesn't let them in again it is one that
// was logged in before, for which they may have to wait, as long as ctx lasts. isNew says that it has been opened, and has no Labels yet.
// p is the session whose own it will be, which counts among those who own one already; nil if it will be a lane's.
func (ls *Lanes) obtain(ctx context.Context, setup Setup, p *Pipe) (conn net.Conn, isNew bool, err error) {
	if ls.refusedLately(setup.Identity) {
		if conn := ls.takeReserve(ctx, setup); conn != nil {
			return conn, false, nil
		}
	}
	conn, err = ls.connect(ctx, setup.Identity)
	var refused *Refused
	if !errors.As(err, &refused) {
		ls.accepted(setup.Identity, err)
		return conn, true, err
	}
	ls.refused(setup.Identity)
	if conn := ls.awaitReserve(ctx, setup, p); conn != nil {
		return conn, false, nil
	}
	return nil, true, err
}

func (ls *Lanes) refusedLately(id Identity) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	g := ls.groups[loginOf(id)]
	return g != nil && time.Since(g.failed) < refusalPause
}

func (ls *Lanes) refused(id Identity) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if g := ls.groups[loginOf(id)]; g != nil {
		g.failed, g.stale = time.Now(), true
	}
}

// accepted takes note of an attempt that wasn't refused.
func (ls *Lanes) accepted(id Identity, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if g := ls.groups[loginOf(id)]; g != nil && err == nil {
		g.stale = false
	}
}

// takeReserve returns a connection of setup's login, which it sets up so, or nil if there is none: also a lane's that nobody uses.
func (ls *Lanes) takeReserve(ctx context.Context, setup Setup) net.Conn {
	for ctx.Err() == nil {
		s := ls.pick(setup.Identity, func(*spare) bool { return true })
		if s == nil {
			s = ls.reclaim(setup.Identity)
		}
		if s == nil {
			return nil
		}
		if s.release() && move(ctx, s, setup) {
			return s.conn
		}
	}
	return nil
}

// awaitReserve does as takeReserve, but waits in line if there is none now, unless nobody can leave one.
func (ls *Lanes) awaitReserve(ctx context.Context, setup Setup, p *Pipe) net.Conn {
	for ctx.Err() == nil {
		if conn := ls.takeReserve(ctx, setup); conn != nil {
			return conn
		}
		s, waited := ls.standInLine(ctx, setup.Identity, p)
		if !waited {
			return nil
		}
		if s != nil && s.release() && move(ctx, s, setup) {
			return s.conn
		}
	}
	return nil
}

// standInLine waits until ctx ends for the next spare of a login, or with s nil for the word to look again. It doesn't wait if
// there is nobody who could leave one.
func (ls *Lanes) standInLine(ctx context.Context, id Identity, p *Pipe) (s *spare, waited bool) {
	place := make(chan *spare, 1)
	pinning := 0 // those who own a connection and are still without
	var gone <-chan struct{}
	if p != nil {
		pinning = 1
	}
	ls.mu.Lock()
	g := ls.groups[loginOf(id)]
	if ls.reserve == 0 || g == nil || g.owned <= pinning && g.lanes == 0 {
		ls.mu.Unlock()
		return nil, false
	}
	g.line = append(g.line, place)
	ls.mu.Unlock()
	if p != nil && p.watch != nil {
		watched, stop := p.watch()
		defer stop()
		gone = watched
	}
	select {
	case s := <-place:
		return s, true
	case <-ctx.Done():
	case <-gone:
		select {
		case s := <-place:
			return s, true
		case <-ctx.Done():
		case <-time.After(halfClosed):
		}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	g.line = slices.DeleteFunc(g.line, func(other chan *spare) bool { return other == place })
	select {
	case s := <-place: // it came at the same moment
		if s != nil {
			ls.keepLocked(g, s.conn, s.setup)
		}
	default:
	}
	ls.dropLocked(g)
	return nil, false
}

// serveLocked gives the first in line a spare, or with nil the word to look again. Lanes.mu is held.
func (g *group) serveLocked(s *spare) {
	g.line[0] <- s // there is room for one, and nobody gives another
	g.line = g.line[1:]
}

// reclaim takes the connection of a lane of this login that nobody uses, or returns nil.
func (ls *Lanes) reclaim(id Identity) *spare {
	ls.mu.Lock()
	var found *lane
	for kind, set := range ls.sets {
		for _, l := range set.lanes {
			if loginOf(kind.Identity) == loginOf(id) && l.users == 0 && !l.retired.Load() {
				found = l
			}
		}
	}
	if found != nil {
		found.retired.Store(true)
		found.unwanted = true
	}
	ls.mu.Unlock()
	if found == nil || !found.surrender() {
		return nil
	}
	return &spare{conn: found.conn, setup: Setup{Identity: found.kind.Identity}}
}
