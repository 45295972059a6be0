package cluster

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// A request that is sent again runs before the login changes, as its user.
func TestRetryInFrontOfALogin(t *testing.T) {
	for _, request := range []string{"AUTH ann pw", "HELLO 3", "RESET"} {
		t.Run(request, func(t *testing.T) {
			p := newPuppets(t, "a:1", "b:1")
			p.send("SET k 1", request, "SET k 2")
			a := p.at("a:1")
			a.hears("SET k 1")
			a.says("-MOVED " + slotK + " b:1")
			b := p.at("b:1")
			b.hears("SET k 1")
			b.says("+1")
			b.hears(request, "SET k 2")
			b.says("+OK", "+2")
			a.hears(request)
			a.says("+OK")
			p.replies("+1", "+OK", "+2")
		})
	}
}

// The Conn ends when a node is lost while it changes the login: the nodes could have different
// users.
func TestLoginThatIsLost(t *testing.T) {
	for _, request := range []string{"AUTH ann pw", "HELLO 3", "RESET"} {
		t.Run(request, func(t *testing.T) {
			p := newPuppets(t, "a:1", "b:1")
			p.send("GET k")
			a := p.at("a:1")
			a.hears("GET k")
			a.says("-MOVED " + slotK + " b:1")
			b := p.at("b:1")
			b.hears("GET k")
			b.says("$-1")
			p.replies("$-1")
			p.send(request)
			a.hears(request)
			b.hears(request)
			b.says("+OK")
			a.nc.Close()
			if got, err := p.in.ReadString('\n'); !strings.HasPrefix(got, "-UPSTREAM ") {
				t.Errorf("%q, %v", got, err)
			}
			if got, err := p.in.ReadString('\n'); err == nil || got != "" || errors.Is(err,
				os.ErrDeadlineExceeded) {
				t.Errorf("afterwards: %q, %v", got, err)
			}
		})
	}
}
