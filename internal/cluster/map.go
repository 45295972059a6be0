package cluster

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strconv"

	"lockproxy/internal/resp"
	"lockproxy/internal/slot"
)

// Slots is how many slots a Redis Cluster has.
const Slots = slot.Count

// Slot is the slot of a key.
func Slot(key []byte) int { return slot.Of(key) }

// slotMap says which node serves which slot, as one node saw it at one moment. A slotMap does not
// change after it was made.
type slotMap struct {
	owner    slotOwners // of each slot: 1 + its index in masters; 0 is none
	masters  []string   // host:port, in the order of the lowest slot that each serves
	lowest   []int      // the lowest slot of each master
	ids      []string   // of the masters; "" if unknown
	replicas []string
	// hostnames are those that nodes announce beside an address; by host:port
	hostnames map[string]string
}

// slotOwners is a number for each slot. Copies share the chunks in which they do not differ: while
// slots move, there is a new map for each.
type slotOwners [Slots / ownersChunk]*[ownersChunk]uint16

// ownersChunk is how many slots are copied together.
const ownersChunk = 256

func (o *slotOwners) of(slot int) uint16 {
	if chunk := o[slot/ownersChunk]; chunk != nil {
		return chunk[slot%ownersChunk]
	}
	return 0
}

// set sets the number of a slot. No copy sees it.
func (o *slotOwners) set(slot int, owner uint16) {
	chunk := [ownersChunk]uint16{}
	if old := o[slot/ownersChunk]; old != nil {
		chunk = *old
	}
	chunk[slot%ownersChunk] = owner
	o[slot/ownersChunk] = &chunk
}

// setRange sets the number of all slots from one to another.
func (o *slotOwners) setRange(from, to int, owner uint16) {
	for slot := from; slot <= to; slot++ {
		if slot == from || slot%ownersChunk == 0 {
			o.set(slot, owner) // from here on the chunk is this map's alone
		}
		o[slot/ownersChunk][slot%ownersChunk] = owner
	}
}

// master is the node that serves a slot; "" is none.
func (m *slotMap) master(slot int) string {
	if i := m.owner.of(slot); i > 0 {
		return m.masters[i-1]
	}
	return ""
}

// nodes is all nodes, the masters first.
func (m *slotMap) nodes() []string { return append(slices.Clone(m.masters), m.replicas...) }

func (m *slotMap) equal(o *slotMap) bool {
	for slot := range Slots {
		if m.owner.of(slot) != o.owner.of(slot) {
			return false
		}
	}
	return slices.Equal(m.masters, o.masters) &&
		slices.Equal(m.ids, o.ids) && slices.Equal(m.replicas, o.replicas) &&
		maps.Equal(m.hostnames, o.hostnames)
}

// promoted is the masters that were replicas in an older map, or have taken the place of a master:
// CLUSTER SLOTS leaves out replicas that have not heard from their master yet.
func (m *slotMap) promoted(old *slotMap) (masters []string) {
	for i, master := range m.masters {
		if j := slices.Index(old.masters, master); j >= 0 && old.ids[j] != "" {
			continue // it has been one for longer than since a redirection
		}
		for slot := range Slots {
			before := old.master(slot)
			if m.owner.of(slot) == uint16(i+1) && (slices.Contains(old.replicas, master) ||
				before != "" && !slices.Contains(m.masters, before)) {
				masters = append(masters, master)
				break
			}
		}
	}
	return masters
}

// whole reports whether every slot has a master.
func (m *slotMap) whole() bool {
	return !slices.ContainsFunc(m.owner[:], func(chunk *[ownersChunk]uint16) bool {
		return chunk == nil || slices.Contains(chunk[:], 0)
	})
}

// toldPromoted is the id, as long as it is unknown, of a replica that a redirection has shown to be a
// master.
const toldPromoted = "?"

// with is a copy of m in which the node at addr serves slot.
func (m *slotMap) with(slot int, addr string) *slotMap {
	changed := *m
	i := slices.Index(m.masters, addr)
	if i < 0 {
		i = len(m.masters)
		changed.masters = append(slices.Clone(m.masters), addr)
		changed.lowest = append(slices.Clone(m.lowest), slot)
		id := ""
		if slices.Contains(m.replicas, addr) {
			id = toldPromoted
		}
		changed.ids = append(slices.Clone(m.ids), id)
		changed.replicas = slices.DeleteFunc(slices.Clone(m.replicas),
			func(replica string) bool { return replica == addr })
	}
	changed.owner.set(slot, uint16(i+1))
	return &changed
}

// parseMap reads the reply to CLUSTER SLOTS of the node at asked.
func parseMap(raw []byte, asked string) (*slotMap, error) {
	v, err := resp.ParseValue(raw)
	if err != nil {
		return nil, err
	}
	if v.IsError() {
		return nil, errors.New(string(v.Text))
	}
	ranges := v.Elems
	slices.SortFunc(ranges, func(a, b resp.Value) int { return int(firstInt(a) - firstInt(b)) })
	m := &slotMap{hostnames: map[string]string{}}
	for _, r := range ranges {
		if len(r.Elems) < 3 {
			return nil, errNoMap
		}
		from, to := r.Elems[0].Int, r.Elems[1].Int
		if from < 0 || to >= Slots || from > to {
			return nil, errNoMap
		}
		master, id, err := parseNode(r.Elems[2], asked)
		if err != nil {
			return nil, err
		}
		m.learnHostname(master, r.Elems[2])
		i := slices.Index(m.masters, master)
		if i < 0 {
			i = len(m.masters)
			m.masters = append(m.masters, master)
			m.lowest = append(m.lowest, int(from))
			m.ids = append(m.ids, id)
		}
		m.owner.setRange(int(from), int(to), uint16(i+1))
		for _, elem := range r.Elems[3:] {
			replica, _, err := parseNode(elem, asked)
			if err == nil && !slices.Contains(m.replicas, replica) {
				m.replicas = append(m.replicas, replica)
				m.learnHostname(replica, elem)
			}
		}
	}
	if len(m.masters) == 0 {
		return nil, errors.New("no node serves any slot")
	}
	return m, nil
}

// learnHostname takes the hostname of the node at addr from its entry in CLUSTER SLOTS, whose fourth
// element has names and values, as of Redis 7.
func (m *slotMap) learnHostname(addr string, node resp.Value) {
	if len(node.Elems) < 4 {
		return
	}
	more := node.Elems[3].Elems
	for i := 0; i+1 < len(more); i += 2 {
		if name := string(more[i+1].Text); string(more[i].Text) == "hostname" && name != "" {
			m.hostnames[addr] = name
		}
	}
}

var errNoMap = errors.New("the answer to CLUSTER SLOTS is not a map of slots")

func firstInt(v resp.Value) int64 {
	if len(v.Elems) == 0 {
		return -1
	}
	return v.Elems[0].Int
}

// parseNode reads one node of CLUSTER SLOTS: host, port, id and more.
func parseNode(v resp.Value, asked string) (addr, id string, err error) {
	if len(v.Elems) < 2 || v.Elems[1].Int < 1 || v.Elems[1].Int > 65535 {
		return "", "", errors.New("the answer to CLUSTER SLOTS has a node without a port")
	}
	if len(v.Elems) > 2 {
		id = string(v.Elems[2].Text)
	}
	port := strconv.FormatInt(v.Elems[1].Int, 10)
	return nodeAddr(string(v.Elems[0].Text), port, asked), id, nil
}

// nodeAddr is the address of a node that the node at asked announces as host and port. Without a
// host it is the one of asked.
func nodeAddr(host, port, asked string) string {
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(asked)
	}
	return net.JoinHostPort(host, port)
}
