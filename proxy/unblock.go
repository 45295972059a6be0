package proxy

import (
	"bytes"
	"strings"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/resp"
)

// answerUnblock is CLIENT UNBLOCK id [TIMEOUT|ERROR]. Redis unblocks what is blocked there, and
// decides whether the caller may. It does not know who waits for a lock: that is unblocked here.
func answerUnblock(x *exchange, req resp.Request) (done bool) {
	return x.answerAfter(func(raw []byte, _ int) []byte {
		if !bytes.Equal(raw, []byte(":0\r\n")) || len(req.Args) < 3 {
			return raw
		}
		id, ok := resp.ParseInt(req.Args[2])
		withError := len(req.Args) > 3 && strings.EqualFold(string(req.Args[3]), "ERROR")
		if ok && x.server.unblock(id, withError) {
			return []byte(":1\r\n")
		}
		return raw
	}, req.Args)
}

// unblockPatience bounds how long the waiting clients' numbers are looked for.
const unblockPatience = time.Second

// unblock ends the wait for a lock of the client with this number, as CLIENT ID tells it. It reports
// whether there was one.
func (s *Server) unblock(id int64, withError bool) bool {
	loopguard.MayWait()
	patience := time.NewTimer(unblockPatience)
	defer patience.Stop()
	for {
		var asked []<-chan struct{} // for numbers that are not known yet
		busy := false               // some can't be asked for now
		for _, sess := range s.list() {
			if !s.locks.Waits(&sess.client.holder) {
				continue
			}
			switch number, known := sess.pipe.ClientID(); {
			case number == id:
				return s.locks.Unblock(&sess.client.holder, withError)
			case number != 0:
			case known != nil:
				asked = append(asked, known)
			default:
				busy = true
			}
		}
		if len(asked) == 0 && !busy {
			return false
		}
		for _, known := range asked {
			select {
			case <-known:
			case <-patience.C:
				return false
			}
		}
		if busy { // with a poll: its answer comes soon
			select {
			case <-time.After(time.Millisecond):
			case <-patience.C:
				return false
			}
		}
	}
}
