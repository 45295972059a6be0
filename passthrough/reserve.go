package passthrough

// How sessions that the upstream has let in are served though it would not let them in once more, because their password has been changed
// since: by connections that were logged in before, as Redis serves a client by the one that it has. Each login keeps a reserve of them. A
// session that sends AUTH gets nothing from a reserve before the upstream itself has said OK.

import (
	"context"
	"errors"
	"net"
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
	g.peak = max(g.peak, g.owned)
	return g
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

// connect opens a connection for sessions that have been let in as id. If the upstream demands a login of them now it fails.
func (ls *Lanes) connect(ctx context.Context, id Identity) (net.Conn, error) {
	conn, err := ls.upstream.connect(ctx, id)
	if err != nil || id.LoggedIn {
		return conn, err
	}
	replies, err := askUntil(ctx, conn, []string{probe})
	switch {
	case len(replies) > 0 && strings.HasPrefix(string(replies[0].raw), noAuth):
		err = &Refused{Addr: ls.upstream.Addr, Step: probe, Reply: string(replies[0].Line)}
	case err != nil:
		err = &Error{Addr: ls.upstream.Addr, Err: err}
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
