package virtualnet

import (
	"bytes"
	"context"
	"net"
)

// Ones connects to an upstream that answers 1 to whatever it is sent, except HELLO, which it does not
// know. Its arguments do not matter.
func Ones(ctx context.Context, network, addr string) (net.Conn, error) {
	return Answering(func() string { return ":1\r\n" })(ctx, network, addr)
}

// Answering connects to an upstream that answers what next returns, except to HELLO.
func Answering(next func() string) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := pair(nextAddr(), nextAddr())
		go func() { // ends with the connection
			for buf := make([]byte, 64<<10); ; {
				n, err := far.Read(buf)
				if err != nil {
					return
				}
				reply := "-ERR unknown command\r\n"
				if !bytes.Contains(bytes.ToLower(buf[:n]), []byte("hello")) {
					reply = next()
				}
				if _, err := far.Write([]byte(reply)); err != nil {
					return
				}
			}
		}()
		return near, nil
	}
}
