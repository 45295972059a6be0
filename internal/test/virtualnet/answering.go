package virtualnet

import (
	"bytes"
	"context"
	"net"
)

// Ones connects to an upstream that answers 1 to whatever it is sent, except HELLO, which it does not
// know. Its arguments do not matter.
func Ones(context.Context, string, string) (net.Conn, error) {
	near, far := pair(nextAddr(), nextAddr())
	go func() { // ends with the connection
		for buf := make([]byte, 64<<10); ; {
			n, err := far.Read(buf)
			if err != nil {
				return
			}
			reply := ":1\r\n"
			if bytes.Contains(bytes.ToLower(buf[:n]), []byte("hello")) {
				reply = "-ERR unknown command\r\n"
			}
			if _, err := far.Write([]byte(reply)); err != nil {
				return
			}
		}
	}()
	return near, nil
}
