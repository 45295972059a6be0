package cluster

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	"lockproxy/internal/resp"
)

// A client's cursor of SCAN names the master that is being scanned, and has that master's own
// cursor. Masters are scanned in the order of the lowest slot that each serves. If that order
// changes, a master could be left out, and another one can't use the cursor: then the scan begins
// again. From the low end: 14 bits of the lowest slot, 8 that identify the order, and the rest for
// the master's cursor.
const (
	scanSlotBits   = 14
	scanIDBits     = 8
	scanCursorBits = 64 - scanSlotBits - scanIDBits
)

// scanPlace is a decoded cursor.
type scanPlace struct {
	slot   int
	id     uint8  // see scanID
	cursor uint64 // the master's own
}

// decodeScan reads a client's cursor; ok is false if it is no number.
func decodeScan(text []byte) (p scanPlace, ok bool) {
	n, err := strconv.ParseUint(string(text), 10, 64)
	return scanPlace{
		slot:   int(n & (1<<scanSlotBits - 1)),
		id:     uint8(n >> scanSlotBits),
		cursor: n >> (scanSlotBits + scanIDBits),
	}, err == nil
}

// scanID identifies the order of the masters in 8 bits.
func scanID(m *slotMap) uint8 {
	h := fnv.New32a()
	for i, id := range m.ids {
		if id == "" || id == toldPromoted {
			id = m.masters[i]
		}
		fmt.Fprintln(h, id, m.lowest[i])
	}
	return uint8(h.Sum32() >> 8)
}

// current is the index of the master that is to be scanned, and its own cursor.
func (p scanPlace) current(m *slotMap) (master int, cursor uint64) {
	if i := slices.Index(m.lowest, p.slot); i >= 0 && p.id == scanID(m) {
		return i, p.cursor
	}
	return 0, 0
}

// nextScan is what the client gets for the cursor that a master has answered; "0" is the end. ok is
// false if it has too many bits.
func nextScan(m *slotMap, master int, answered uint64) (cursor string, ok bool) {
	if answered == 0 {
		master++
	}
	if master == len(m.masters) {
		return "0", true
	}
	n := uint64(m.lowest[master]) | uint64(scanID(m))<<scanSlotBits |
		answered<<(scanSlotBits+scanIDBits)
	return strconv.FormatUint(n, 10), answered < 1<<scanCursorBits
}

// scanned makes the client's reply out of that of a master.
func scanned(m *slotMap, master int, raw []byte) []byte {
	kind, elems, err := resp.Elements(raw)
	if err != nil || len(elems) != 2 {
		return raw // an error
	}
	v, err := resp.ParseValue(elems[0])
	if err != nil {
		return raw
	}
	answered, err := strconv.ParseUint(string(v.Text), 10, 64)
	if err != nil {
		return raw
	}
	cursor, ok := nextScan(m, master, answered)
	if !ok {
		return resp.AppendError(nil,
			"ERR a node's cursor is too large to carry the node's name: scan the nodes one by one")
	}
	elems[0] = bulk(cursor)
	return resp.AppendAggregate(nil, kind, elems)
}

// scan sends SCAN to the master that the cursor names.
func scan(c *Conn, q *query) {
	var place scanPlace
	known := len(q.args) > 1
	if known {
		place, known = decodeScan(q.args[1])
	}
	m := c.nodes.slots
	switch {
	case !known:
		toDefault(c, q) // a node says what is wrong
		return
	case m == nil:
		noNodes(c)
		return
	}
	master, cursor := place.current(m)
	args := slices.Clone(q.args)
	args[1] = strconv.AppendUint(nil, cursor, 10)
	r := newRequest(resp.AppendCommand(nil, args...), -1)
	r.finish = func(replies [][]byte) []byte { return scanned(m, master, replies[0]) }
	c.send(r, c.nodes.at(m.masters[master]))
}
