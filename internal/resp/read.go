package resp

import (
	"errors"
	"fmt"
	"io"
)

// errTooLarge is of a reply that is larger than ReadReply was told it may be.
var errTooLarge = errors.New("the reply is too large")

// ReadReply reads one whole reply from r and nothing beyond it, so that r can be given to somebody else afterwards. It skips pushes:
// Redis may send them between any two replies on a RESP3 connection, and any user can have it do so, with key names of that user's choice.
// They are not kept in memory, and r's deadline bounds how long they may go on. The reply has at most limit bytes.
func ReadReply(r io.Reader, limit int) (raw []byte, head Head, err error) {
	var buf [512]byte
	for {
		var scan Scanner
		for done := false; !done; {
			n, err := r.Read(buf[:min(scan.Least(), len(buf))])
			if n == 0 && err != nil {
				return raw, head, err
			}
			took, ended, err := scan.Scan(buf[:n])
			switch {
			case err != nil:
				return raw, head, err
			case took < n:
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
