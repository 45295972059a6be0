package passthrough

import (
	"testing"
	"time"
)

// A connection may be given up by its reader at the same moment in which the session has it look: whoever reads it next must not be
// interrupted for that, or it would be taken for an end of the connection, and so of the session's login.
func TestGivenUpWhileToldToLook(t *testing.T) {
	for _, leaving := range []bool{false, true} {
		near, far := tcpPair(t)
		lanes := NewLanes(&Upstream{Network: "tcp", Addr: far.LocalAddr().String()}, 1, 1, time.Second)
		p := NewPipe(lanes, far, nil, func(error) []byte { return nil })
		p.mu.Lock()
		p.up, p.ledger.Trusted = near, true
		p.lookLocked()
		p.salvaging, p.leaving = leaving, leaving
		gaveUp, looks := p.spareLocked(), p.look
		p.mu.Unlock()
		if !gaveUp || looks {
			t.Fatalf("given up: %v, still told to look: %v", gaveUp, looks)
		}
		if _, err := far.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if n, err := near.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("leaving %v: its next reader got %d, %v", leaving, n, err)
		}
		lanes.Close()
	}
}
