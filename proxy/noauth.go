package proxy

// Clients that have not logged in, where the upstream demands that. Only the upstream knows, and it
// says so in its replies.

import (
	"bytes"
	"errors"

	"lockproxy/internal/resp"
	"lockproxy/passthrough"
)

var (
	ping       = resp.AppendCommand(nil, "PING")
	noAuthCode = []byte("-NOAUTH")
)

// noAuth returns the upstream's own NOAUTH if the client must log in before it may do anything
// else, and nil if it may go on. An error says that the upstream could not be asked.
func (x *exchange) noAuth() (reply []byte, err error) {
	if state, _ := x.pipe.State(); state.Admitted || x.awaitState().Admitted {
		return nil, nil
	}
	if err := x.route(passthrough.Home, nil); err != nil {
		return nil, err
	}
	if reply, err = x.ask(ping).Raw(); !bytes.HasPrefix(reply, noAuthCode) {
		reply = nil
	}
	return reply, err
}

// unlessNoAuth is text, which the proxy itself answers, or the upstream's NOAUTH if the client must
// log in first. state is the connection's from before the command.
func (x *exchange) unlessNoAuth(state passthrough.State, text []byte) []byte {
	if state.Admitted {
		return text
	}
	if reply, _ := x.noAuth(); reply != nil {
		return reply
	}
	return text
}

// admit returns nil if a request that failed with err must be framed again, since the limit that it
// exceeds does not apply to this client. Otherwise it returns what the client is told.
func (x *exchange) admit(err error) error {
	var limit *resp.ProtocolError
	if !errors.As(err, &limit) || !limit.Unauthenticated {
		return err
	}
	switch reply, failed := x.noAuth(); {
	case failed != nil:
		return failed
	case reply != nil:
		return err
	}
	x.in.framer.Unauthenticated(false)
	return nil
}
