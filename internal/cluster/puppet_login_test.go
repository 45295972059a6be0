package cluster

import (
	"strconv"
	"strings"
	"testing"
)

// A request that is sent again runs before the login changes, as its user.
func TestRetryInFrontOfALogin(t *testing.T) {
	for _, request := range []string{"AUTH ann pw", "HELLO 3", "RESET", "SELECT 1"} {
		t.Run(request, func(t *testing.T) {
			p := newPuppets(t, "a:1", "b:1")
			p.send("SET k 1", request, "SET k 2")
			a := p.at("a:1")
			a.hears("SET k 1")
			a.says("-MOVED " + slotK + " b:1")
			b := p.at("b:1")
			b.hears("SET k 1")
			b.says("+1")
			a.hears(request)
			a.says("+OK")
			b.hears(request)
			b.says("+OK")
			b.hears("SET k 2")
			b.says("+2")
			p.replies("+1", "+OK", "+2")
		})
	}
}

// settings are requests that set something, and what a later connection is sent if a node has
// accepted them.
var settingRequests = map[string]string{
	"AUTH ann pw":                   "AUTH ann pw",
	"HELLO 3":                       "HELLO 3",
	"HELLO 3 AUTH ann pw SETNAME x": "AUTH ann pw; HELLO 3; CLIENT SETNAME x",
	"HELLO 3 AUTH ann pw":           "AUTH ann pw; HELLO 3",
	"RESET":                         "",
	"SELECT 1":                      "SELECT 1",
	"CLIENT SETNAME x":              "CLIENT SETNAME x",
	"CLIENT SETINFO LIB-NAME x":     "CLIENT SETINFO LIB-NAME x",
	"CLIENT SETINFO LIB-VER x":      "CLIENT SETINFO LIB-VER x",
	"CLIENT NO-EVICT ON":            "CLIENT NO-EVICT ON",
	"CLIENT NO-TOUCH ON":            "CLIENT NO-TOUCH ON",
	"CLIENT TRACKING ON":            "CLIENT TRACKING ON",
	"CLIENT CAPA redirect":          "CLIENT CAPA redirect",
	"CLIENT IMPORT-SOURCE ON":       "CLIENT IMPORT-SOURCE ON",
}

// threeNodes are a, the default node, b, which the client has used, and c, to which it has an
// unused connection.
func threeNodes(t *testing.T) (p *puppets, a, b, c *puppet) {
	p = newPuppets(t, "a:1", "b:1", "c:1", "d:1")
	a = p.opens("a:1")
	p.cl.slots.Store(allAt("a:1").with(Slot([]byte("k")), "b:1"))
	p.send("GET k")
	b = p.at("b:1")
	b.hears("GET k")
	b.says("$-1")
	p.replies("$-1")
	c = p.unused("c:1")
	return p, a, b, c
}

// unused is the Conn's connection to a node, which is asked nothing.
func (p *puppets) unused(name string) *puppet {
	p.t.Helper()
	p.conn.mu.Lock()
	p.conn.nodes.at(name)
	p.conn.mu.Unlock()
	n := p.at(name)
	p.await(func() bool { return p.conn.nodes.byAddr[name].Conn != nil })
	return n
}

// newNode has a new node asked, and returns what its connection was to send first.
func (p *puppets) newNode() (n *puppet, setup string) {
	p.t.Helper()
	p.cl.slots.Store(allAt("a:1").with(Slot([]byte("k")), "d:1"))
	p.send("GET k")
	n = p.at("d:1")
	n.hears("GET k")
	n.says("+new")
	p.replies("+new")
	return n, p.setupOf("d:1")
}

func (p *puppets) setupOf(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.setup[name]
}

// isEnded waits until the Conn has closed its connection to the node.
func (n *puppet) isEnded() {
	n.t.Helper()
	if b, err := n.in.ReadByte(); err == nil {
		n.t.Fatalf("the node is asked something that begins with %q", b)
	}
}

// What one node refuses has changed nothing at any other, nor for what comes behind it.
func TestRefusedSetting(t *testing.T) {
	for request := range settingRequests {
		t.Run(request, func(t *testing.T) {
			p, a, b, c := threeNodes(t)
			p.send(request, "GET k")
			a.hears(request)
			a.says("-WRONGPASS no")
			p.replies("-WRONGPASS no")
			b.hears("GET k")
			b.says("+1")
			p.replies("+1")
			if _, setup := p.newNode(); setup != "" {
				t.Errorf("a new node is sent %q", setup)
			}
			p.conn.mu.Lock()
			p.conn.nodes.at("c:1").sendOwn(pingCommand)
			p.conn.mu.Unlock()
			c.hears("PING")
		})
	}
}

// Other nodes, and what the client sends next, are asked only once one node has accepted a setting.
// Later connections begin with it, and so does an unused one if the node must not run anything
// without it.
func TestAcceptedSetting(t *testing.T) {
	for request, want := range settingRequests {
		t.Run(request, func(t *testing.T) {
			p, a, b, c := threeNodes(t)
			p.send(request, "GET k")
			a.hears(request)
			a.says("+OK")
			b.hears(request)
			b.says("+OK")
			p.replies("+OK")
			b.hears("GET k")
			b.says("+1")
			p.replies("+1")
			if strings.HasPrefix(request, "CLIENT") {
				c.hears(request)
			} else {
				c.isEnded()
				p.at("c:1")
				if got := p.setupOf("c:1"); got != want {
					t.Errorf("the unused node is sent %q", got)
				}
			}
			if _, got := p.newNode(); got != want {
				t.Errorf("a new node is sent %q", got)
			}
		})
	}
}

// A node that refuses what another one has accepted serves the client no more, and gets what comes
// next on a new connection, which begins with that.
func TestSettingThatNodesDisagreeAbout(t *testing.T) {
	for request, want := range settingRequests {
		t.Run(request, func(t *testing.T) {
			p, a, b, _ := threeNodes(t)
			p.send(request, "GET k")
			a.hears(request)
			a.says("+OK")
			b.hears(request)
			b.says("-WRONGPASS no")
			if request == "CLIENT TRACKING ON" {
				p.replies("+OK")
				p.ends(errDiffers) // the client would miss invalidations
				return
			}
			p.replies("+OK")
			b.isEnded()
			b = p.at("b:1")
			b.hears("GET k")
			if got := p.setupOf("b:1"); got != want {
				t.Errorf("it is sent %q", got)
			}
		})
	}
}

// A node that is lost before it has answered has set nothing anywhere. One that is lost after
// another has accepted gets a new connection.
func TestSettingWhoseNodeIsLost(t *testing.T) {
	for request := range settingRequests {
		t.Run(request, func(t *testing.T) {
			p, a, b, _ := threeNodes(t)
			p.send(request, "GET k")
			a.hears(request)
			a.nc.Close()
			p.replies("-UPSTREAM a:1: sent true")
			b.hears("GET k")
			b.says("+1")
			p.replies("+1")
			if _, setup := p.newNode(); setup != "" {
				t.Errorf("a new node is sent %q", setup)
			}
		})
	}
	p, a, b, _ := threeNodes(t)
	p.send("AUTH ann pw", "GET k")
	a.hears("AUTH ann pw")
	a.says("+OK")
	b.hears("AUTH ann pw")
	b.nc.Close()
	p.replies("+OK")
	p.at("b:1").hears("GET k")
}

// A HELLO that Redis up to 7.0 can have obeyed in part leaves no connection behind.
func TestRefusedHelloThatIsHalf(t *testing.T) {
	for request, said := range map[string]string{
		"HELLO 3 AUTH ann pw SETNAME <>":  "ERR Client names cannot contain spaces",
		"HELLO 3 SETNAME x AUTH ann no":   "WRONGPASS no",
		"HELLO 3 SETNAME x":               "NOAUTH HELLO must be called",
		"HELLO 3 AUTH ann pw AUTH bob no": "WRONGPASS no",
	} {
		t.Run(request, func(t *testing.T) {
			p, a, b, _ := threeNodes(t)
			p.send(request, "GET k")
			a.hears(request)
			a.says("-" + said)
			p.replies("-" + said)
			a.isEnded()
			b.hears("GET k")
		})
	}
}

// A new login takes the place of the one that the Conn began with, also at later nodes.
func TestLoginInPlaceOfTheFirst(t *testing.T) {
	p := newPuppets(t, "a:1")
	p.conn.settings = newSettings([][]string{{"AUTH", "url"}, {"SELECT", "2"},
		{"CLIENT", "SETINFO", "LIB-NAME", "x"}})
	a := p.opens("a:1")
	if got := p.setupOf("a:1"); got != "AUTH url; SELECT 2; CLIENT SETINFO LIB-NAME x" {
		t.Errorf("the first node is sent %q", got)
	}
	for _, next := range []struct{ request, setup string }{
		{"AUTH ann pw", "AUTH ann pw; SELECT 2; CLIENT SETINFO LIB-NAME x"},
		{"SELECT 0", "AUTH ann pw; CLIENT SETINFO LIB-NAME x"},
		{"RESET", "CLIENT SETINFO LIB-NAME x"},
		{"HELLO 3", "CLIENT SETINFO LIB-NAME x; HELLO 3"},
		{"AUTH url", "AUTH url; CLIENT SETINFO LIB-NAME x; HELLO 3"},
		{"CLIENT TRACKING ON BCAST PREFIX a", "AUTH url; CLIENT SETINFO LIB-NAME x; HELLO 3; " +
			"CLIENT TRACKING ON BCAST PREFIX a"},
		{"CLIENT TRACKING ON BCAST PREFIX b", "AUTH url; CLIENT SETINFO LIB-NAME x; HELLO 3; " +
			"CLIENT TRACKING ON BCAST PREFIX a; CLIENT TRACKING ON BCAST PREFIX b"},
		{"CLIENT TRACKING OFF", "AUTH url; CLIENT SETINFO LIB-NAME x; HELLO 3"},
	} {
		p.send(next.request)
		a.hears(next.request)
		a.says("+OK")
		p.replies("+OK")
		var setup []string
		p.conn.mu.Lock()
		for _, words := range p.conn.settings.requests() {
			setup = append(setup, strings.Join(words, " "))
		}
		p.conn.mu.Unlock()
		if got := strings.Join(setup, "; "); got != next.setup {
			t.Errorf("after %s a new node is sent %q", next.request, got)
		}
	}
}

// Within MULTI nothing can be set for the connections to all nodes.
func TestSettingWithinMulti(t *testing.T) {
	for request := range settingRequests {
		if request == "RESET" {
			continue // which ends the transaction
		}
		p, a, _, _ := threeNodes(t)
		p.send("MULTI", request, "EXEC")
		a.hears("MULTI")
		a.says("+OK")
		p.replies("+OK")
		a.hears("GET", "EXEC")
		a.says("-ERR wrong number of arguments", "-EXECABORT")
		if got, _ := p.in.ReadString('\n'); !strings.Contains(got, "can't be part of a transaction") {
			t.Errorf("%s: %q", request, got)
		}
		p.replies("-EXECABORT")
	}
}

// RESET ends a transaction only if it is accepted. It is asked where the transaction is.
func TestResetWithinMulti(t *testing.T) {
	for _, refused := range []bool{true, false} {
		p, a, b, _ := threeNodes(t)
		p.send("MULTI", "SET k 1")
		a.hears("MULTI", "GET", "EXEC")
		a.says("+OK", "-ERR wrong number of arguments", "-EXECABORT")
		b.hears("MULTI", "SET k 1")
		b.says("+OK", "+QUEUED")
		p.replies("+OK", "+QUEUED")
		p.send("RESET", "SET k 2")
		b.hears("RESET")
		if refused {
			b.says("-ERR unknown command")
			p.replies("-ERR unknown command")
			b.hears("SET k 2")
			b.says("+QUEUED")
			p.replies("+QUEUED")
			p.send("EXEC")
			b.hears("EXEC")
			continue
		}
		b.says("+RESET")
		a.hears("RESET")
		a.says("+RESET")
		p.replies("+RESET")
		b.hears("SET k 2")
	}
}

// What sets something waits for what the Conn itself has asked of a node: a server can leave out
// the refusal of a login that comes behind other requests.
func TestLoginWaitsForWhatTheConnAsks(t *testing.T) {
	p, a, _, _ := threeNodes(t)
	p.conn.mu.Lock()
	p.conn.nodes.at("a:1").sendOwn(pingCommand)
	p.conn.mu.Unlock()
	a.hears("PING")
	p.send("AUTH ann no", "GET other")
	p.await(func() bool { return p.conn.in.held })
	a.says("+PONG")
	a.hears("AUTH ann no")
	a.says("-WRONGPASS no")
	a.hears("GET other")
	p.replies("-WRONGPASS no")
}

// A large request behind a login is not sent before the login is known.
func TestLargeRequestBehindALogin(t *testing.T) {
	p, a, b, _ := threeNodes(t)
	p.send("AUTH ann pw")
	value := strings.Repeat("x", 3<<20)
	written := make(chan struct{})
	go func() { // ends when the node has taken it
		defer close(written)
		p.conn.Write([]byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$" + strconv.Itoa(len(value)) +
			"\r\n" + value + "\r\n"))
	}()
	a.hears("AUTH ann pw")
	p.await(func() bool { return len(p.conn.in.rest) > 0 })
	a.says("+OK")
	b.hears("AUTH ann pw")
	b.says("+OK")
	p.replies("+OK")
	b.hears("SET k " + value)
	<-written
}
