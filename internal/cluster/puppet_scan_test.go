package cluster

import "testing"

// A SCAN that could not be sent to a lost node goes to no other: that one can't use the cursor.
func TestScanOfALostNode(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("PING")
	a := p.at("a:1")
	a.hears("PING")
	a.says("+PONG")
	p.replies("+PONG")
	p.send("TIME") // which it doesn't read, so that nothing more can be sent
	p.awaitSent("a:1", 1)
	p.send("SCAN 0")
	p.refreshed("b:1", true)
	a.nc.Close()
	p.replies("-UPSTREAM a:1: sent true", "-UPSTREAM a:1: sent false")
}
