package cluster

import (
	"strings"
	"testing"
)

// largeText is more than is gathered of a reply before some of it is delivered.
var largeText = strings.Repeat("x", 4*streamFrom)

// endless has a node send pieces of a reply until the Conn reads no more of it, and returns how many
// there were.
func (n *puppet) endless(p *puppets, begin string) (pieces int) {
	p.t.Helper()
	done := make(chan struct{})
	var sent int
	go func() { // ends with the connection
		defer close(done)
		_, err := n.nc.Write([]byte(begin))
		for err == nil && sent < 400 {
			if _, err = n.nc.Write([]byte(largeText)); err == nil {
				p.conn.mu.Lock()
				sent++
				p.conn.mu.Unlock()
			}
		}
	}()
	p.await(func() bool { return p.conn.replies.unread > maxUnread })
	p.t.Cleanup(func() { n.nc.Close(); <-done })
	p.conn.mu.Lock()
	defer p.conn.mu.Unlock()
	return sent
}

// An error line or a message without an end is given to the client as it comes, and no more of it is
// read than the client leaves unread.
func TestEndlessErrorsAndMessages(t *testing.T) {
	for _, endless := range []string{"-ERR ", "!999999999\r\n",
		">2\r\n$10\r\ninvalidate\r\n*1\r\n$999999999\r\n",
		">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$999999999\r\n"} {
		p := twoNodes(t)
		a := p.opens("a:1")
		p.send("GET other", "GET k")
		b := p.at("b:1")
		b.hears("GET other")
		a.hears("GET k")
		if sent := a.endless(p, endless); sent > 2*maxUnread/len(largeText)+2 {
			t.Errorf("%.10q: %d pieces are kept", endless, sent)
		}
		if endless[0] != '>' { // a push comes as soon as it can
			b.says("$-1")
			p.replies("$-1")
		}
		got := make([]byte, len(endless)+10<<20)
		for read := 0; read < len(got); {
			k, err := p.in.Read(got[read:])
			if read += k; err != nil {
				t.Fatal(err)
			}
		}
		if string(got[:len(endless)]) != endless {
			t.Errorf("%.40q instead of %q", got, endless)
		}
	}
}

// What ends a large error is no redirection, though it looks like one.
func TestEndOfALargeError(t *testing.T) {
	p := newPuppets(t, "a:1", "b:1")
	p.send("GET k")
	a := p.at("a:1")
	a.hears("GET k")
	line := "-ERR " + strings.Repeat(largeText+"\r"+moveK, 2)
	go a.says(line) // it waits until that is read
	p.replies(strings.TrimRight(line, "\r\n"))
	p.send("GET k")
	a.hears("GET k")
}

// A large message comes whole and in its place, and one that the client is not to see does not.
func TestLargeMessages(t *testing.T) {
	p := twoNodes(t)
	p.send("SUBSCRIBE c __keyevent@0__:set")
	a, b := p.at("a:1"), p.at("b:1")
	b.hears("SUBSCRIBE __keyevent@0__:set")
	b.says(confirmation("subscribe", "__keyevent@0__:set", "1")...)
	a.hears("SUBSCRIBE c __keyevent@0__:set")
	a.says(confirmation("subscribe", "c", "1")...)
	message := func(channel string) []string {
		lines := confirmation("message", channel, "")
		return append(lines[:5], "$262144", largeText)
	}
	go func() {
		a.says(message("c")...)
		a.says(confirmation("subscribe", "__keyevent@0__:set", "2")...)
		a.says(message("c")...)
		b.says(message("c")...)
		b.says(message("__keyevent@0__:set")...)
		b.says(message("__keyevent@0__:get")...)
	}()
	p.replies(confirmation("subscribe", "c", "1")...)
	p.replies(message("c")...)
	p.replies(confirmation("subscribe", "__keyevent@0__:set", "2")...)
	// Those of two nodes have no common order.
	from := map[string]int{}
	for range 3 {
		lines := message("c")
		p.replies(lines[:3]...)
		if _, err := p.in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		channel, _ := p.in.ReadString('\n')
		from[strings.TrimSpace(channel)]++
		p.replies(lines[5:]...)
	}
	if from["c"] != 1 || from["__keyevent@0__:set"] != 1 || from["__keyevent@0__:get"] != 1 {
		t.Errorf("messages: %v", from)
	}
}
