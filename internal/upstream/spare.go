package upstream

// Connections that are opened before their clients come.

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"lockproxy/internal/cluster"
)

// Fresh reports whether a connection is as it was when it was opened. Bytes that have come on it
// since are not for the next client, not even a push.
func Fresh(conn net.Conn) bool {
	if whole, ok := conn.(*cluster.Conn); ok {
		return whole.Fresh()
	}
	return isIdle(conn, false)
}

// Prepare finds out which server a new connection of a user leads to, and whether that has said
// on it that a client must log in first. After an error the connection is closed.
func (u *Upstream) Prepare(
	ctx context.Context, conn net.Conn, user string,
) (server Server, nobody bool, err error) {
	err = within(ctx, conn, func() (err error) {
		server, err = u.askServer(conn, user)
		return err
	})
	if nobody = IsLoginDemand(err); nobody {
		err = nil
	}
	return server, nobody, u.closeIf(err, conn)
}

// errNotReset is why a connection cannot be used for somebody else.
var errNotReset = errors.New("RESET was refused")

// Reset makes a connection, by which nothing is under way, what Prepare makes of a new one: labels
// are those of its client. Its server is asked only what is not known of it. After an error it is
// closed.
func (u *Upstream) Reset(
	ctx context.Context, conn net.Conn, known Server, labels Labels,
) (server Server, nobody bool, err error) {
	err = errNotReset
	if u.cluster == nil {
		err = within(ctx, conn, func() (err error) {
			nobody, err = u.reset(conn, labels)
			return err
		})
	}
	switch {
	case err != nil:
		return Server{}, false, u.closeIf(err, conn)
	case known.Question() == nil:
		return u.Prepare(ctx, conn, u.Initial.User)
	}
	return known, nobody, nil
}

// reset is Reset without a context, for one server. nobody is Prepare's.
func (u *Upstream) reset(conn net.Conn, labels Labels) (nobody bool, err error) {
	cmds := labels.library("", "") // first, as the user who could set them: RESET keeps them
	before := len(cmds)
	cmds = append(cmds, []string{"RESET"})
	if !u.Initial.LoggedIn {
		cmds = append(cmds, []string{probe})
	}
	replies, err := roundTrip(conn, cmds...)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(replies[:before+1], func(r reply) bool { return r.IsError() }) {
		return false, errNotReset
	}
	if login := u.Initial.Login(); len(login) > 0 || u.sentinels != nil {
		err = u.login(conn, u.Addr, login)
	}
	return !u.Initial.LoggedIn && letsNobodyIn(replies[before+1].Head), err
}

// SetUp makes a connection that was opened as Initial that of a client. After an error, which is
// Dial's, it is closed.
func (u *Upstream) SetUp(ctx context.Context, conn net.Conn, as Setup) error {
	if as == (Setup{Identity: u.Initial}) {
		return nil
	}
	addr := u.Addr
	if u.sentinels != nil {
		addr = conn.RemoteAddr().String()
	}
	cmds := as.commands()
	if u.isOwn(cmds) { // the connection is logged in so
		cmds = cmds[1:]
	}
	if as.DB == 0 && u.Initial.DB != 0 {
		cmds = append(cmds, []string{"SELECT", "0"})
	}
	err := within(ctx, conn, func() error { return u.login(conn, addr, cmds) })
	return u.closeIf(err, conn)
}

// closeIf closes a connection that an error has spoiled, and returns that as Dial's.
func (u *Upstream) closeIf(err error, conn net.Conn) error {
	if err == nil {
		return nil
	}
	conn.Close()
	var known *Error
	var refused *Refused
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &refused):
		return refused
	}
	return &Error{Addr: u.Addr, Err: err}
}

// within runs f, which uses conn, no longer than ctx lasts.
func within(ctx context.Context, conn net.Conn, f func() error) error {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	err := f()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	return err
}
