package proxy

// Clients that have not logged in, where the upstream demands that. Only the upstream knows, and it says
// so in its replies.

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

// noAuth returns the upstream's own NOAUTH if the client must log in before it may do anything else, and
// nil if it need not. An error says that the upstream could not be asked.
func (s *session) noAuth() (reply []byte, err error) {
	if state, _ := s.pipe.State(); state.Admitted || s.awaitState().Admitted {
		return nil, nil
	}
	if err := s.connect(passthrough.Home); err != nil {
		return nil, err
	}
	answer := s.pipe.Do(ping)[0]
	s.await(answer)
	if reply, err = answer.Raw(); !bytes.HasPrefix(reply, noAuthCode) {
		reply = nil
	}
	return reply, err
}

// unlessNoAuth is what a client is answered by the proxy itself, text, or if it must log in first the
// upstream's NOAUTH. state is the connection's from before the command.
func (s *session) unlessNoAuth(state passthrough.State, text []byte) []byte {
	if state.Admitted {
		return text
	}
	if reply, _ := s.noAuth(); reply != nil {
		return reply
	}
	return text
}

// admit returns nil if a request that failed with err is to be framed again, since the limit that it
// exceeds is not for this client, and otherwise what the client is told.
func (s *session) admit(err error) error {
	var limit *resp.ProtocolError
	if !errors.As(err, &limit) || !limit.Unauthenticated {
		return err
	}
	switch reply, failed := s.noAuth(); {
	case failed != nil:
		return failed
	case reply != nil:
		return err
	}
	s.framer.Unauthenticated(false)
	return nil
}
