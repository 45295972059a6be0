package badlink

import (
	"crypto/tls"
	"net"
)

// TLS makes a listener one whose clients speak TLS. The far end of a Link stays as it is: what the
// link does to requests and replies it does to those, not to the records of TLS.
func TLS(ln net.Listener, config *tls.Config) net.Listener { return tlsEnds{ln, config} }

// tlsEnds are the near ends of connections with TLS.
type tlsEnds struct {
	net.Listener
	config *tls.Config
}

func (l tlsEnds) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return tlsEnd{tls.Server(raw, l.config), raw}, nil
}

// tlsEnd is one of them. Its Close ends TLS, too, as that of a Redis does that has not failed.
type tlsEnd struct {
	*tls.Conn
	raw net.Conn
}

func (c tlsEnd) Close() error {
	c.CloseWrite()
	return c.raw.Close()
}
