package cluster

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"lockproxy/internal/resp"
)

// slotMap is who serves what, as one node saw it at one moment. It is pure, and not changed once it is made.
type slotMap struct {
	owner    [Slots]uint16 // of each slot, 1 + its index in masters; 0 is nobody
	masters  []string      // host:port, in the order of the lowest slot that each serves
	lowest   []int         // for each master
	ids      []string      // of the masters; "" if it isn't known
	replicas []string
}

// master is who serves a slot; "" is nobody.
func (m *slotMap) master(slot int) string {
	if i := m.owner[slot]; i > 0 {
		return m.masters[i-1]
	}
	return ""
}

// knows reports whether a node is one of the cluster's, as master is one that serves slots.
func (m *slotMap) knows(addr string) (master, any bool) {
	master = slices.Contains(m.masters, addr)
	return master, master || slices.Contains(m.replicas, addr)
}

// nodes is all of them, the masters first.
func (m *slotMap) nodes() []string { return append(slices.Clone(m.masters), m.replicas...) }

// equal reports whether two maps say the same.
func (m *slotMap) equal(o *slotMap) bool {
	return m.owner == o.owner && slices.Equal(m.masters, o.masters) && slices.Equal(m.ids, o.ids) && slices.Equal(m.replicas, o.replicas)
}

// promoted are the masters that were replicas in an older map.
func (m *slotMap) promoted(old *slotMap) (masters []string) {
	for i, master := range m.masters {
		if slices.Contains(old.replicas, master) && slices.Contains(m.owner[:], uint16(i+1)) {
			masters = append(masters, master)
		}
	}
	return masters
}

// whole reports whether every slot has a master.
func (m *slotMap) whole() bool { return !slices.Contains(m.owner[:], 0) }

// with is m but for one slot, of which a node has said that another serves it.
func (m *slotMap) with(slot int, addr string) *slotMap {
	changed := *m
	i := slices.Index(m.masters, addr)
	if i < 0 {
		i = len(m.masters)
		changed.masters = append(slices.Clone(m.masters), addr)
		changed.lowest = append(slices.Clone(m.lowest), slot)
		changed.ids = append(slices.Clone(m.ids), "")
		changed.replicas = slices.DeleteFunc(slices.Clone(m.replicas), func(r string) bool { return r == addr })
	}
	changed.owner[slot] = uint16(i + 1)
	return &changed
}

// parseMap reads the answer to CLUSTER SLOTS of the node at asked.
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
	m := &slotMap{}
	for _, r := range ranges {
		if len(r.Elems) < 3 || r.Elems[0].Int < 0 || r.Elems[1].Int >= Slots || r.Elems[0].Int > r.Elems[1].Int {
			return nil, errors.New("an answer to CLUSTER SLOTS that isn't one")
		}
		master, id, err := parseNode(r.Elems[2], asked)
		if err != nil {
			return nil, err
		}
		i := slices.Index(m.masters, master)
		if i < 0 {
			i = len(m.masters)
			m.masters = append(m.masters, master)
			m.lowest = append(m.lowest, int(r.Elems[0].Int))
			m.ids = append(m.ids, id)
		}
		for slot := r.Elems[0].Int; slot <= r.Elems[1].Int; slot++ {
			m.owner[slot] = uint16(i + 1)
		}
		for _, elem := range r.Elems[3:] {
			if replica, _, err := parseNode(elem, asked); err == nil && !slices.Contains(m.replicas, replica) {
				m.replicas = append(m.replicas, replica)
			}
		}
	}
	if len(m.masters) == 0 {
		return nil, errors.New("no node serves any slot")
	}
	return m, nil
}

func firstInt(v resp.Value) int64 {
	if len(v.Elems) == 0 {
		return -1
	}
	return v.Elems[0].Int
}

// parseNode reads one node: host, port, id, and what else there may be. A host that the node doesn't know, or doesn't want to tell,
// is the one where it was asked.
func parseNode(v resp.Value, asked string) (addr, id string, err error) {
	if len(v.Elems) < 2 || v.Elems[1].Int < 1 || v.Elems[1].Int > 65535 {
		return "", "", fmt.Errorf("a node without a port in CLUSTER SLOTS")
	}
	if len(v.Elems) > 2 {
		id = string(v.Elems[2].Text)
	}
	return nodeAddr(string(v.Elems[0].Text), strconv.FormatInt(v.Elems[1].Int, 10), asked), id, nil
}

// nodeAddr is where a node is that is announced as host and port by the one at asked.
func nodeAddr(host, port, asked string) string {
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(asked)
	}
	return net.JoinHostPort(host, port)
}
