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

// split sends the keys of each slot in a request, each key with what follows it. So MSET sets the
// keys of each slot atomically, but not all of its keys.
func split(c *Conn, q *query, at []int) {
	gs, width, join := groups(q.args, at), q.cmd.Keys.Step, q.cmd.join
	switch {
	case (len(q.args)-1)%width > 0:
		c.replies.answer(resp.AppendError(nil,
			"ERR wrong number of arguments for '"+q.cmd.Name+"' command"))
		return
	case q.cmd.Name == "mget":
		join = joinMget(gs, len(at))
	}
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
		c.dispatch(r.parts[i])
	}
}

// joinMget makes an array with the values of n keys, in the order of the request.
func joinMget(gs []group, n int) joiner {
	return func(replies [][]byte) []byte {
		whole := make([][]byte, n)
		for i, raw := range replies {
			_, elems, err := resp.Elements(raw)
			if err != nil || len(elems) != len(gs[i].at) {
				return resp.AppendError(nil,
					"ERR a node has answered its part of the request with an unexpected type")
			}
			for j, elem := range elems {
				whole[gs[i].at[j]-1] = elem
			}
		}
		return resp.AppendAggregate(nil, '*', whole)
	}
}
