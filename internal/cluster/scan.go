package cluster

import (
	"hash/fnv"
	"strconv"

	"lockproxy/internal/resp"
)

// A cursor of SCAN says which master is being scanned, and where in it. Masters are scanned in the order of the lowest slot that each
// serves, so a replica that takes its master's place takes its turn too. From the low end: 14 bits for that slot, 8 for who the
// master was, since another one's own cursor says nothing to it, and the rest for the master's own cursor.
const (
	scanSlotBits   = 14
	scanWhoBits    = 8
	scanCursorBits = 64 - scanSlotBits - scanWhoBits
)

// scanPlace is a decoded cursor.
type scanPlace struct {
	slot   int
	who    uint8
	cursor uint64 // the master's own
}

// decodeScan reads a client's cursor; ok is false if it is no number.
func decodeScan(text []byte) (p scanPlace, ok bool) {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		return p, false
	}
	return scanPlace{
		slot:   int(n & (1<<scanSlotBits - 1)),
		who:    uint8(n >> scanSlotBits),
		cursor: n >> (scanSlotBits + scanWhoBits),
	}, true
}

func (p scanPlace) encode() uint64 {
	return uint64(p.slot) | uint64(p.who)<<scanSlotBits | p.cursor<<(scanSlotBits+scanWhoBits)
}

// whoIs is a master in 8 bits.
func whoIs(id string) uint8 {
	h := fnv.New32a()
	h.Write([]byte(id))
	return uint8(h.Sum32() >> 8)
}

// current is the master that is to be scanned, as an index, and its own cursor: if it isn't the one that gave it, from the start.
// ok is false if there is nothing left to scan.
func (p scanPlace) current(m *slotMap) (master int, cursor uint64, ok bool) {
	for i, lowest := range m.lowest {
		if lowest < p.slot {
			continue
		}
		if lowest == p.slot && whoIs(m.name(i)) == p.who {
			cursor = p.cursor
		}
		return i, cursor, true
	}
	return 0, 0, false
}

// next is what the client gets for the cursor that a master has answered; "0" is the end. ok is false if it doesn't fit.
func nextScan(m *slotMap, master int, answered uint64) (cursor string, ok bool) {
	switch {
	case answered >= 1<<scanCursorBits:
		return "", false
	case answered > 0:
		return strconv.FormatUint(scanPlace{m.lowest[master], whoIs(m.name(master)), answered}.encode(), 10), true
	case master+1 == len(m.masters):
		return "0", true
	}
	return strconv.FormatUint(scanPlace{m.lowest[master+1], whoIs(m.name(master + 1)), 0}.encode(), 10), true
}

// name is what tells a master from others.
func (m *slotMap) name(i int) string {
	if m.ids[i] != "" {
		return m.ids[i]
	}
	return m.masters[i]
}

// scanned makes the client's reply out of the one of a master.
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
		return resp.AppendError(nil, "ERR a node's cursor is too large to be told with the node: scan the nodes one by one")
	}
	elems[0] = appendBulk(nil, cursor)
	return resp.AppendAggregate(nil, kind, elems)
}

func appendBulk(dst []byte, text string) []byte {
	dst = strconv.AppendInt(append(dst, '$'), int64(len(text)), 10)
	return append(append(append(dst, "\r\n"...), text...), "\r\n"...)
}
