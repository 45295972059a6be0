package cluster

import "lockproxy/internal/resp"

// group is the keys of a request that are in one slot.
type group struct {
	slot   int
	places []int // which of the keys, from 0
}

// groups puts keys together by slot, in the order of their first keys.
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

// splitBy sends the keys of each slot in a request, each key with the width-1 arguments behind it.
func splitBy(c *Conn, q *query, at []int, gs []group, width int, join joiner) {
	r := newSplitRequest(len(gs), joinReplies(join, false))
	c.replies.add(r)
	for i, g := range gs {
		args := make([][]byte, 1, 1+width*len(g.places))
		args[0] = q.args[0]
		for _, place := range g.places {
			args = append(args, q.args[at[place]:at[place]+width]...)
		}
		p := r.parts[i]
		p.raw, p.slot = resp.AppendCommand(nil, args...), g.slot
		c.unanswered += len(p.raw)
	}
	for _, p := range r.parts {
		c.dispatch(p)
	}
}

func splitMget(c *Conn, q *query, at []int) {
	gs := groups(q.args, at)
	splitBy(c, q, at, gs, 1, joinPlaces(gs, len(at)))
}

// joinPlaces makes an array of n elements: the j-th of reply i is at gs[i].places[j]. For MGET.
func joinPlaces(gs []group, n int) joiner {
	return func(replies [][]byte) []byte {
		whole := make([][]byte, n)
		for i, raw := range replies {
			_, elems, err := resp.Elements(raw)
			if err != nil || len(elems) != len(gs[i].places) {
				return resp.AppendError(nil,
					"ERR a node has answered a part of the request otherwise than it should")
			}
			for j, elem := range elems {
				whole[gs[i].places[j]] = elem
			}
		}
		return resp.AppendAggregate(nil, '*', whole)
	}
}

// splitMset sets the keys of each slot atomically, but not those of all.
func splitMset(c *Conn, q *query, at []int) {
	if len(q.args)%2 == 0 {
		c.replies.answer([]byte("-ERR wrong number of arguments for 'mset' command\r\n"))
		return
	}
	splitBy(c, q, at, groups(q.args, at), 2, joinFirst)
}

// splitSum is for commands that answer how many keys they were about.
func splitSum(c *Conn, q *query, at []int) {
	splitBy(c, q, at, groups(q.args, at), 1, joinSum)
}
