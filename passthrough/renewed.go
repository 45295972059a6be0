package passthrough

// How sessions are served whose password is not valid any more, once others have logged in as the same user with one that is: Redis goes on
// serving as that user whoever it has let in, whatever with.

import (
	"context"
	"errors"
	"net"
)

// defaultUser is who a connection without a login is.
const defaultUser = "default"

// userOf is the user that a connection of a login is.
func userOf(key login) string {
	if !key.loggedIn || key.user == "" {
		return defaultUser
	}
	return key.user
}

// connectRenewed opens a connection like one for id, which the upstream has just refused, with a password that the upstream has let others in
// with as id's user. ok is false if there is none, or it doesn't do either.
func (ls *Lanes) connectRenewed(ctx context.Context, id Identity) (conn net.Conn, ok bool) {
	for _, other := range ls.renewals(loginOf(id)) {
		as := id
		as.User, as.Password, as.LoggedIn = other.user, other.password, other.loggedIn
		conn, err := ls.upstream.connect(ctx, as)
		if err == nil {
			return conn, true
		}
		var refused *Refused
		if errors.As(err, &refused) {
			ls.refused(as)
		}
	}
	return nil, false
}

// renewals are the logins of the same user that the upstream has let in and not refused since. There are none unless a connection of this login
// still stands: if the user had been deleted, and another of its name made, none would.
func (ls *Lanes) renewals(key login) (others []login) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	g := ls.groups[key]
	if g == nil || ls.upstream.cluster != nil || !ls.standsLocked(g) {
		return nil
	}
	for _, other := range ls.groups {
		if other.login != key && other.loggedIn && !other.stale && userOf(other.login) == userOf(key) {
			others = append(others, other.login)
		}
	}
	return others
}

// standsLocked reports whether there is a connection of g's that nobody has closed. mu is held.
func (ls *Lanes) standsLocked(g *group) bool {
	if g.owned > g.pinning {
		return true
	}
	for kind, set := range ls.sets {
		for _, l := range set.lanes {
			if loginOf(kind.Identity) == g.login && !l.lost() {
				return true
			}
		}
	}
	for _, s := range g.idle {
		if quiet(s.conn) {
			return true
		}
	}
	return false
}
