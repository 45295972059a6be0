package cluster

import "lockproxy/internal/resp"

// group is the keys of a request that are in one slot.
type group struct {
	slot   int
	places []int // which of the keys, from 0
}

// groups puts keys together by slot, in the order of their first keys. It is pure.
func groups(args [][]byte, at []int) (all []group) {
	index := map[int]int{}
	for place, j := range at {
		slot := Slot(args[j])
		i, known := index[slot]
		if !known {
			i = len(all)
			index[slot] = i
			all = append(all, group{slot: slot})
		}
		all[i].places = append(all[i].places, place)
	}
	return all
}

// splitBy asks for the keys of each slot apart. with says how many arguments go with each key, itself among them.
func splitBy(c *Conn, q *query, at []int, with int, finish func(gs []group) func([][]byte) []byte) {
	gs := groups(q.args, at)
	r := c.splitRequest(len(gs), finish(gs))
	for i, g := range gs {
		args := make([][]byte, 1, 1+with*len(g.places))
		args[0] = q.args[0]
		for _, place := range g.places {
			args = append(args, q.args[at[place]:at[place]+with]...)
		}
		p := r.parts[i]
		p.raw, p.slot = resp.AppendCommand(nil, args...), g.slot
		c.kept += len(p.raw)
	}
	for _, p := range r.parts {
		c.dispatch(p)
	}
}

// splitMget puts the values where their keys were.
func splitMget(c *Conn, q *query, at []int) {
	n := len(at)
	splitBy(c, q, at, 1, func(gs []group) func([][]byte) []byte {
		places := make([][]int, len(gs))
		for i, g := range gs {
			places[i] = g.places
		}
		return joinReplies(joinPlaces(places, n), false)
	})
}

// splitMset sets the keys of each slot at once, but not those of all.
func splitMset(c *Conn, q *query, at []int) {
	if len(q.args)%2 == 0 {
		c.local([]byte("-ERR wrong number of arguments for 'mset' command\r\n"))
		return
	}
	splitBy(c, q, at, 2, func([]group) func([][]byte) []byte { return joinReplies(joinFirst, false) })
}

// splitSum adds up how many keys it was about.
func splitSum(c *Conn, q *query, at []int) {
	splitBy(c, q, at, 1, func([]group) func([][]byte) []byte { return joinReplies(joinSum, false) })
}
