package cluster

import (
	"strconv"
	"strings"
	"testing"
)

// A redirected request whose reply is the next to be read does not wait for answers of its slot
// that are behind more than is read before that reply.
func TestRedirectedBeforeMuchUnread(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("GET k", "GET other", "SET k 1")
	a := p.at("a:1")
	a.hears("GET k", "GET other", "SET k 1")
	big, size := strings.Repeat("x", 2*maxUnread), "$"+strconv.Itoa(2*maxUnread)
	go func() { // it waits until its replies are read
		a.says("-MOVED " + slotK + " b:1")
		a.says(size, big)
		a.says("-MOVED " + slotK + " b:1")
	}()
	b := p.at("b:1")
	b.hears("GET k")
	b.says("$-1")
	p.replies("$-1", size, big)
	b.hears("SET k 1")
	b.says("+OK")
	p.replies("+OK")
}
