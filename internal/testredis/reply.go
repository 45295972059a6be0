package testredis

import (
	"bufio"
	"bytes"

	"lockproxy/internal/resp"
)

// ReadReply reads one whole reply, raw. With an error it returns what was read of it.
func ReadReply(in *bufio.Reader) (string, error) {
	var scan resp.Scanner
	var raw bytes.Buffer
	for {
		if _, err := in.Peek(1); err != nil {
			return raw.String(), err
		}
		read, _ := in.Peek(in.Buffered())
		n, done, err := scan.Scan(read)
		raw.Write(read[:n])
		in.Discard(n)
		if done || err != nil {
			return raw.String(), err
		}
	}
}
