package cluster

import "testing"

// A request without a key that could not be sent to a lost node goes to no other: SCAN's cursor is
// that node's, and CLIENT SETNAME, which all nodes were asked since, would have overtaken GETNAME.
func TestUnsentRequestOfALostNode(t *testing.T) {
	for _, request := range []string{"SCAN 0", "CLIENT GETNAME"} {
		p := newPuppets(t, "a:1", "b:1")
		a := p.opens("a:1")
		p.send("TIME") // which it doesn't read, so that nothing more can be sent
		p.awaitSent("a:1", 1)
		p.send(request)
		p.refreshed("b:1", true)
		a.nc.Close()
		p.replies("-UPSTREAM a:1: sent true", "-UPSTREAM a:1: sent false")
	}
}
