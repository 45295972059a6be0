package resp

import (
	"errors"
	"fmt"
	"io"
)

// errTooLarge says that a reply is larger than the limit of ReadReply.
var errTooLarge = errors.New("the reply is too large")

// ReadReply reads one whole reply from r, of at most limit bytes, and nothing behind it: another
// reader can take over r. It skips pushes: on a RESP3 connection Redis can send them between any
// two replies, and any user can cause that, with key names of its choice. Pushes are not kept in
// memory, and r's deadline bounds how long they go on.
func ReadReply(r io.Reader, limit int) (raw []byte, head Head, err error) {
	var buf [512]byte
	for {
		var scan Scanner
		for done := false; !done; {
			n, err := r.Read(buf[:min(scan.Least(), len(buf))])
			if n == 0 && err != nil {
				return raw, head, err
			}
			used, ended, err := scan.Scan(buf[:n])
			switch {
			case err != nil:
				return raw, head, err
			case used < n:
				return raw, head, fmt.Errorf("%w: cut short", errReply)
			}
			if done, head = ended, scan.Head(); head.Type != '>' {
				raw = append(raw, buf[:n]...)
			}
			if len(raw) > limit {
				return raw, head, fmt.Errorf("%w: more than %d bytes", errTooLarge, limit)
			}
		}
		if head.Type != '>' {
			return raw, head, nil
		}
		raw = nil
	}
}
