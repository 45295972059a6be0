package cluster

// The numbers of clients. Each node numbers its connections from 1. Clients see numbers that name
// the node as well, so that each leads to one connection.

import (
	"hash/fnv"
	"math"

	"lockproxy/internal/resp"
)

// nodeBits is how many bits of a shown number, at its low end, name the node.
const nodeBits = 20

// nobody is a number that no node gives to a connection.
const nobody = math.MaxInt64

// clientRef is a connection by the number that its node has given it.
type clientRef struct {
	addr string
	id   int64
}

func nodeCode(addr string) int64 {
	h := fnv.New32a()
	h.Write([]byte(addr))
	return int64(h.Sum32() >> (32 - nodeBits))
}

// shown is the number that clients see.
func (ref clientRef) shown() int64 { return ref.id<<nodeBits | nodeCode(ref.addr) }

// refOf is the connection with a shown number, among those to these nodes; ok is false if that is
// not certain.
func refOf(shown int64, addrs []string) (ref clientRef, ok bool) {
	found := 0
	for _, addr := range addrs {
		if nodeCode(addr) == shown&(1<<nodeBits-1) {
			ref = clientRef{addr, shown >> nodeBits}
			found++
		}
	}
	return ref, found == 1 && ref.id > 0
}

// member is a Conn's connection to a node: CLIENT LIST names it by its address here.
type member struct {
	c           *Conn
	node, local string
}

// connected records that a connection is open.
func (cl *Cluster) connected(m member) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.members[m] = 0
}

// disconnected is called when a connection has ended: its number can be another's when the node has
// been started again.
func (cl *Cluster) disconnected(m member) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	delete(cl.members, m)
	if cl.shown[m.c].addr == m.node {
		delete(cl.shown, m.c)
	}
}

// learned records the number of a connection, if that is still open.
func (cl *Cluster) learned(m member, id int64) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.learnedLocked(m, id)
}

func (cl *Cluster) learnedLocked(m member, id int64) {
	if _, open := cl.members[m]; open {
		cl.members[m] = id
	}
}

// numberOf is the number of a Conn that has a connection with ref's. It is always the same while the
// connection is open whose number was the first to be shown.
func (cl *Cluster) numberOf(c *Conn, ref clientRef) int64 {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.numberOfLocked(c, ref)
}

func (cl *Cluster) numberOfLocked(c *Conn, ref clientRef) int64 {
	first, ok := cl.shown[c]
	if !ok {
		first = ref
		cl.shown[c] = ref
	}
	return first.shown()
}

// Number is the number by which clients know the Conn; 0 if none was shown.
func (c *Conn) Number() (number int64) {
	c.cluster.mu.Lock()
	defer c.cluster.mu.Unlock()
	if ref, ok := c.cluster.shown[c]; ok {
		number = ref.shown()
	}
	return number
}

// clientOf is the Conn that a connection belongs to and all of its connections; nil and this one if
// that is not known.
func (cl *Cluster) clientOf(ref clientRef) (c *Conn, refs []clientRef) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for other, first := range cl.shown {
		if first == ref {
			c = other
		}
	}
	for m, id := range cl.members {
		if (clientRef{m.node, id}) == ref {
			c = m.c
		}
	}
	refs = append(refs, ref)
	for m, id := range cl.members {
		if other := (clientRef{m.node, id}); m.c == c && id != 0 && other != ref {
			refs = append(refs, other)
		}
	}
	return c, refs
}

var clientIDCommand = resp.AppendCommand(nil, "CLIENT", "ID")

// member is n's connection, which is open.
func (n *node) member() member { return member{n.c, n.addr, n.Conn.LocalAddr().String()} }

// learnID asks the node for the connection's number.
func (n *node) learnID() {
	r := n.c.ownRequest(clientIDCommand)
	r.finish = func(replies [][]byte) []byte {
		if v, err := resp.ParseValue(replies[0]); err == nil && v.Type == ':' {
			n.id = v.Int
			n.c.cluster.learned(n.member(), n.id)
		}
		return nil
	}
	n.push(&r.one)
}
