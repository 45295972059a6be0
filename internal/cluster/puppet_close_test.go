package cluster

import (
	"errors"
	"testing"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/test/testwait"
)

// Close ends a Conn, also one of which a node is still being dialled, and does not wait for that:
// event loops close Conns. Wait does.
func TestCloseDoesNotWait(t *testing.T) {
	p := newPuppets(t, "a:1")
	dialled, goOn := make(chan struct{}), make(chan struct{})
	p.dials["a:1"] = func() error {
		close(dialled)
		<-goOn
		return errors.New("nobody is there")
	}
	p.send("PING")
	<-dialled
	loopguard.On()
	leave := loopguard.Enter(new(loopguard.Goroutine))
	p.conn.Close()
	leave()
	waited := make(chan struct{})
	go func() { // ends once a:1 is not dialled any more
		defer close(waited)
		p.conn.Wait()
	}()
	testwait.Blocked(t, "cluster.(*Conn).Wait")
	close(goOn)
	testwait.For(t, "the end of the dialling", waited)
}
