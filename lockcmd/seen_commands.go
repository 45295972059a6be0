package lockcmd

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// LOCKTOP and LOCKLOG: what this proxy has seen of the locks in the client's database that its user
// may read.

const (
	// maxVisible bounds the keys for which one command asks whether the user may read them.
	maxVisible = 10000
	// visibleBatch is how many of them it asks about together.
	visibleBatch = 250
)

// readable asks, on the client's own connection, which of the keys its user may read, and notes
// those in may. PTTL is a command that LOCK's users may run, and the upstream checks the key before
// anything else. then says what follows.
func readable(keys []string, may map[string]bool, then func() (Reply, *Step)) (Reply, *Step) {
	if len(keys) == 0 {
		return then()
	}
	asked := keys[:min(len(keys), visibleBatch)]
	step := &Step{Further: true}
	for _, key := range asked {
		step.Do = append(step.Do, words("PTTL", key))
	}
	step.Finish = func(answer script.Answer, err error) (Reply, *Step) {
		if err != nil {
			return errorReply(err), nil
		}
		for i, raw := range answer.Raw {
			_, err := script.ParseReply(raw)
			said, _ := err.(script.ServerError)
			if err != nil && !script.HasCode(said, "NOPERM") {
				return errorReply(err), nil
			}
			may[asked[i]] = err == nil
		}
		return readable(keys[len(asked):], may, then)
	}
	return Reply{}, step
}

// SortCosts puts the most expensive first: by wait, hold, or count (of acquisitions and refusals).
func SortCosts(list []journal.Cost, by string) {
	value := func(c *journal.Cost) int64 {
		switch by {
		case "hold":
			return int64(c.Hold)
		case "count":
			return int64(c.Acquired) + int64(c.Refused)
		}
		return int64(c.Wait)
	}
	slices.SortFunc(list, func(a, b journal.Cost) int {
		return cmp.Or(cmp.Compare(value(&b), value(&a)), cmp.Compare(a.DB, b.DB),
			cmp.Compare(a.Key, b.Key))
	})
}

// MergeShapes merges the costs of locks whose keys have the same shape. The Key is the shape.
func MergeShapes(list []journal.Cost) []journal.Cost {
	for i := range list {
		list[i].Key = keyname.Shape(list[i].Key)
	}
	return journal.Merge(list)
}

// beginTop is LOCKTOP.
func (l *queries) beginTop(c Client, args [][]byte) *Step {
	o, err := syntax.ParseTop(args)
	if err != nil {
		return answered(errorReply(err))
	}
	all := l.Costs(journal.Window, func(id names.Lock) bool { return id.DB == c.As.DB })
	SortCosts(all, o.By)
	all = all[:min(len(all), maxVisible)]
	return &Step{Finish: func(script.Answer, error) (Reply, *Step) { return topOf(o, all, nil) }}
}

// topOf makes LOCKTOP's reply: of list, and of those in all that the user may read.
func topOf(o syntax.Top, all, list []journal.Cost) (Reply, *Step) {
	if len(all) == 0 || !o.Shapes && len(list) >= o.Count {
		return topReply(o, list), nil
	}
	batch, may := all[:min(len(all), visibleBatch)], map[string]bool{}
	keys := make([]string, len(batch))
	for i := range batch {
		keys[i] = batch[i].Key
	}
	return readable(keys, may, func() (Reply, *Step) {
		for _, c := range batch {
			if may[c.Key] {
				list = append(list, c)
			}
		}
		return topOf(o, all[len(batch):], list)
	})
}

func topReply(o syntax.Top, list []journal.Cost) Reply {
	if o.Shapes {
		list = MergeShapes(list)
		SortCosts(list, o.By)
	}
	reply := Reply{Kind: ArrayReply}
	for _, c := range list[:min(len(list), o.Count)] {
		reply.Elems = append(reply.Elems, costReply(c))
	}
	return reply
}

// maxBlamed bounds the holders that LOCKTOP names.
const maxBlamed = 5

func costReply(c journal.Cost) Reply {
	blame := Reply{Kind: MapReply}
	for _, b := range c.Blame {
		if len(blame.Elems) < 2*maxBlamed && b.Wait >= time.Millisecond {
			who := cmp.Or(b.Holder, "unknown")
			blame.Elems = append(blame.Elems, bulkReply(who), msReply(b.Wait))
		}
	}
	reply := mapReply(
		"key", bulkReply(c.Key),
		"acquired", intReply(int64(c.Acquired)),
		"refused", intReply(int64(c.Refused)),
		"waits", intReply(int64(c.Waits)),
		"wait_ms", msReply(c.Wait),
		"longest_wait_ms", msReply(c.LongestWait),
		"hold_ms", msReply(c.Hold),
		"longest_hold_ms", msReply(c.LongestHold),
		"blame", blame,
	)
	if key, ok := keyname.MadeBy(c.Key); ok {
		reply.Elems = append(reply.Elems, mapReply("makes", bulkReply(key)).Elems...)
	}
	return reply
}

func msReply(d time.Duration) Reply { return intReply(d.Milliseconds()) }

// mapReply is a map of names and Replies in turn.
func mapReply(fields ...any) Reply {
	m := Reply{Kind: MapReply}
	for i := 0; i < len(fields); i += 2 {
		m.Elems = append(m.Elems, bulkReply(fields[i].(string)), fields[i+1].(Reply))
	}
	return m
}

// beginLog is LOCKLOG [key] [COUNT n].
func (l *queries) beginLog(c Client, args [][]byte) *Step {
	count, key, one := syntax.DefaultCount, "", len(args)%2 == 1
	if one {
		key, args = string(args[0]), args[1:]
	}
	if len(args) > 0 {
		var err error
		if !strings.EqualFold(string(args[0]), "COUNT") {
			return answered(errorReply(syntax.Unexpected(args[0], "COUNT n")))
		}
		if count, err = syntax.ParseCount(args[1]); err != nil {
			return answered(errorReply(err))
		}
	}
	return &Step{Finish: func(script.Answer, error) (Reply, *Step) {
		return l.logOf(count, 10*count, map[string]bool{}, func(e *journal.Event) bool {
			return e.DB == c.As.DB && (!one || e.Key == key) && e.Kind <= journal.Deleted
		})
	}}
}

// logOf makes LOCKLOG's reply of the last limit events, or of more if the user may not read some.
// may says which keys it may read.
func (l *queries) logOf(
	count, limit int, may map[string]bool, want func(e *journal.Event) bool,
) (Reply, *Step) {
	events, more := l.Events(limit, want)
	var ask []string
	for _, e := range events {
		if _, known := may[e.Key]; !known && len(may) < maxVisible {
			may[e.Key] = false
			ask = append(ask, e.Key)
		}
	}
	return readable(ask, may, func() (Reply, *Step) {
		reply, now := Reply{Kind: ArrayReply}, time.Now()
		for _, e := range events {
			if may[e.Key] && len(reply.Elems) < count {
				reply.Elems = append(reply.Elems, eventReply(e, now))
			}
		}
		if len(reply.Elems) >= count || !more || len(may) >= maxVisible {
			return reply, nil
		}
		return l.logOf(count, 4*limit, may, want)
	})
}

func eventReply(e Event, now time.Time) Reply {
	token := nullReply
	if e.Token != 0 {
		token = intReply(e.Token)
	}
	return mapReply(
		"at_ms", intReply(e.When.UnixMilli()),
		"event", bulkReply(e.Kind.String()),
		"key", bulkReply(e.Key),
		"token", token,
		"owner", bulkReply(e.Owner),
		"client", bulkReply(e.Client),
		"wait_ms", msReply(e.Wait),
		"hold_ms", msReply(e.Hold),
		"ago_ms", msReply(now.Sub(e.When)),
	)
}
