package cluster

import (
	"errors"
	"os"
	"strings"
	"testing"
)

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
