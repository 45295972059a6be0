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

// learned records a connection of c's, whose client has asked for its number.
func (cl *Cluster) learned(c *Conn, ref clientRef) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.clients[ref] = c
}

// unlearned is called when a connection of c's has ended: its number can be another's when the node
// has been started again.
func (cl *Cluster) unlearned(c *Conn, ref clientRef) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.clients[ref] == c {
		delete(cl.clients, ref)
	}
}

// clientOf is the Conn that a connection belongs to and all of its connections; nil and this one if
// that is not known.
func (cl *Cluster) clientOf(ref clientRef) (*Conn, []clientRef) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	c := cl.clients[ref]
	if c == nil {
		return nil, []clientRef{ref}
	}
	var refs []clientRef
	for ref, other := range cl.clients {
		if other == c {
			refs = append(refs, ref)
		}
	}
	return c, refs
}

var clientIDCommand = resp.AppendCommand(nil, "CLIENT", "ID")

// learnID asks the node for the connection's number.
func (n *node) learnID() {
	r := n.c.ownRequest(clientIDCommand)
	r.finish = func(replies [][]byte) []byte {
		if v, err := resp.ParseValue(replies[0]); err == nil && v.Type == ':' {
			n.id = v.Int
			n.c.cluster.learned(n.c, clientRef{n.addr, n.id})
		}
		return nil
	}
	n.push(&r.one)
}
