package cluster

// The numbers of clients. Each node numbers its connections from 1. Clients see numbers that name
// the node as well, so that each leads to one connection.

import (
	"hash/fnv"
	"math"
	"slices"

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

// clientIDs is the connections that are known to be one client's: those of the Conns whose clients
// have asked for their number. Cluster.mu guards it.
type clientIDs struct {
	byRef  map[clientRef]*Conn
	byConn map[*Conn][]clientRef
}

// learned records a connection of c's.
func (cl *Cluster) learned(c *Conn, ref clientRef) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if !cl.conns[c] {
		return // it is closed
	}
	cl.clients.byRef[ref] = c
	cl.clients.byConn[c] = append(cl.clients.byConn[c], ref)
}

// unlearned is called when c's connection to a node has ended: the number can be another's when the
// node has been started again.
func (cl *Cluster) unlearned(c *Conn, addr string) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	ended := func(ref clientRef) bool { return ref.addr == addr }
	ids := &cl.clients
	for _, ref := range ids.byConn[c] {
		if ended(ref) && ids.byRef[ref] == c {
			delete(ids.byRef, ref)
		}
	}
	if ids.byConn[c] = slices.DeleteFunc(ids.byConn[c], ended); len(ids.byConn[c]) == 0 {
		delete(ids.byConn, c)
	}
}

// clientOf is the Conn that a connection belongs to and all of its connections; nil and this one if
// that is not known.
func (cl *Cluster) clientOf(ref clientRef) (*Conn, []clientRef) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	c := cl.clients.byRef[ref]
	if c == nil {
		return nil, []clientRef{ref}
	}
	return c, slices.Clone(cl.clients.byConn[c])
}

var clientIDCommand = resp.AppendCommand(nil, "CLIENT", "ID")

// learnID asks the node for the connection's number.
func (n *node) learnID() {
	r := n.c.ownRequest(clientIDCommand)
	r.finish = func(replies [][]byte) []byte {
		if v, err := resp.ParseValue(replies[0]); err == nil && v.Type == ':' {
			n.learned = true
			n.c.cluster.learned(n.c, clientRef{n.addr, v.Int})
		}
		return nil
	}
	n.push(&r.one)
}
