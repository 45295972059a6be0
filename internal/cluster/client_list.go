package cluster

// CLIENT LIST: the lists of all nodes as one, in which each client of this cluster is once, though it
// has a connection to each node.

import (
	"strconv"
	"strings"

	"lockproxy/internal/resp"
)

// clientLine is a line of a CLIENT LIST.
type clientLine struct {
	node   string // whose list it is in
	text   string // begins with id=
	rest   string // behind the number
	id     int64  // the node's
	number int64  // what is shown instead
}

// read cuts the line. It reports whether there is a number.
func (l *clientLine) read() bool {
	id, rest, _ := strings.Cut(l.text, " ")
	text, named := strings.CutPrefix(id, "id=")
	n, ok := resp.ParseInt([]byte(text))
	l.rest, l.id = rest, n
	l.number = clientRef{l.node, n}.shown()
	return ok && named
}

// field is the value of a field, which begins there with begin. No value has a space.
func (l *clientLine) field(begin string) string {
	_, value, _ := strings.Cut(" "+l.rest, begin)
	value, _, _ = strings.Cut(value, " ")
	return value
}

// shown is the line with the number for clients.
func (l *clientLine) shown() string {
	if l.id == 0 {
		return l.text
	}
	return "id=" + strconv.FormatInt(l.number, 10) + " " + l.rest
}

// joinLists makes one list of those of nodes. Of a client's connections the one is shown that was
// used last. Clients of other proxies have a line for each connection.
func (cl *Cluster) joinLists(replies [][]byte, nodes []*node) []byte {
	var lines []*clientLine
	for i, raw := range replies {
		list, ok := textOf(raw)
		if !ok {
			return replies[0]
		}
		for text := range strings.Lines(list) {
			l := &clientLine{node: nodes[i].addr, text: text}
			l.read()
			lines = append(lines, l)
		}
	}
	var list strings.Builder
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
