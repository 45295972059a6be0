package cluster

// CLIENT LIST: the lists of all nodes as one, in which each client of this cluster is once, though it
// has a connection to each node.

import (
	"bytes"
	"strconv"
	"strings"

	"lockproxy/internal/resp"
)

// clientLine is a line of a CLIENT LIST.
type clientLine struct {
	node   string // whose list it is in
	text   []byte // begins with id= or txt:id=
	begin  []byte // up to the number
	rest   []byte // behind the number
	id     int64  // the node's
	number int64  // what is shown instead
}

// read cuts the line. It reports whether there is a number.
func (l *clientLine) read() bool {
	id, rest, _ := bytes.Cut(l.text, []byte(" "))
	at := bytes.IndexByte(id, '=') + 1
	n, ok := resp.ParseInt(id[at:])
	l.begin, l.rest, l.id = id[:at], rest, n
	l.number = clientRef{l.node, n}.shown()
	return ok && at > 0
}

// field is the value of a field, which begins there with begin. No value has a space.
func (l *clientLine) field(begin string) string {
	_, value, _ := bytes.Cut(append([]byte(" "), l.rest...), []byte(begin))
	value, _, _ = bytes.Cut(value, []byte(" "))
	return string(value)
}

// shown is the line with the number for clients.
func (l *clientLine) shown() string {
	if l.id == 0 {
		return string(l.text)
	}
	return string(l.begin) + strconv.FormatInt(l.number, 10) + " " + string(l.rest)
}

// joinLists makes one list of those of nodes. Of a client's connections the one is shown that was
// used last. Clients of other proxies have a line for each connection.
func (cl *Cluster) joinLists(replies [][]byte, nodes []*node) []byte {
	var lines []*clientLine
	for i, raw := range replies {
		v, err := resp.ParseValue(raw)
		if err != nil || v.Type != '$' && v.Type != '=' {
			return replies[0]
		}
		if v.Type == '=' {
			v.Text = bytes.TrimPrefix(v.Text, []byte("txt:"))
		}
		for text := range bytes.Lines(v.Text) {
			l := &clientLine{node: nodes[i].addr, text: text}
			l.read()
			lines = append(lines, l)
		}
	}
	var list strings.Builder
	if replies[0][0] == '=' {
		list.WriteString("txt:")
	}
	for _, l := range cl.oneForEach(lines) {
		list.WriteString(l.shown())
	}
	return textReply(replies[0][0], list.String())
}

// oneForEach leaves out the lines that tell of the same client as another one, learns the numbers of
// the clients' connections, and gives each client its own.
func (cl *Cluster) oneForEach(lines []*clientLine) (left []*clientLine) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	type end struct{ node, local string }
	ends := map[end]member{}
	for m := range cl.members {
		ends[end{m.node, m.local}] = m
	}
	best := map[*Conn]*clientLine{}
	idle := func(l *clientLine) int64 {
		n, _ := resp.ParseInt([]byte(l.field(" idle=")))
		return n
	}
	of := map[*clientLine]*Conn{}
	for _, l := range lines {
		m, known := ends[end{l.node, l.field(" addr=")}]
		if !known || l.id == 0 {
			continue
		}
		of[l] = m.c
		cl.learnedLocked(m, l.id)
		if b := best[m.c]; b == nil || idle(l) < idle(b) {
			best[m.c] = l
		}
	}
	for _, l := range lines {
		c := of[l]
		if c != nil && best[c] != l {
			continue
		}
		if c != nil {
			l.number = cl.numberOfLocked(c, clientRef{l.node, l.id})
		}
		left = append(left, l)
	}
	return left
}
