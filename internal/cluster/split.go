package cluster

import "lockproxy/internal/resp"

// group is the keys of a request that are in one slot.
type group struct {
	slot int
	at   []int // where they are in the request's arguments
}

// groups puts the keys at these places together by slot, in the order of their first keys.
func groups(args [][]byte, at []int) (all []group) {
	index := map[int]int{}
	for _, at := range at {
		slot := Slot(args[at])
		i, known := index[slot]
		if !known {
			i = len(all)
			index[slot] = i
			all = append(all, group{slot: slot})
		}
		all[i].at = append(all[i].at, at)
	}
	return all
}

// splitBy sends the keys of each slot in a request, each key with the width-1 arguments behind it.
func splitBy(c *Conn, q *query, gs []group, width int, join joiner) {
	raws := make([][]byte, len(gs))
	for i, g := range gs {
		args := make([][]byte, 1, 1+width*len(g.at))
		args[0] = q.args[0]
		for _, at := range g.at {
			args = append(args, q.args[at:at+width]...)
		}
		raws[i] = resp.AppendCommand(nil, args...)
	}
	r := c.addSplit(raws, joinReplies(join, false))
	for i, g := range gs {
		r.parts[i].slot = g.slot
		c.dispatch(&r.parts[i])
	}
}

func splitMget(c *Conn, q *query, at []int) {
	gs := groups(q.args, at)
	splitBy(c, q, gs, 1, joinMget(gs, len(at)))
}

// joinMget makes an array with the values of n keys, in the order of the request.
func joinMget(gs []group, n int) joiner {
	return func(replies [][]byte) []byte {
		whole := make([][]byte, n)
		for i, raw := range replies {
			_, elems, err := resp.Elements(raw)
			if err != nil || len(elems) != len(gs[i].at) {
				return resp.AppendError(nil,
					"ERR a node has answered its part of the request with something else")
			}
			for j, elem := range elems {
				whole[gs[i].at[j]-1] = elem
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
	splitBy(c, q, groups(q.args, at), 2, joinFirst)
}

// splitSum is for commands that answer how many keys they were about.
func splitSum(c *Conn, q *query, at []int) {
	splitBy(c, q, groups(q.args, at), 1, joinSum)
}
