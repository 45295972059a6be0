package lockcmd

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
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

// errAgain says that the answer about a key is missing: it is to be asked for again, alone.
var errAgain = errors.New("asked again")

// askEach asks about keys on the client's own connection, as many as batch together at first, and
// has take look at each answer. An error of take ends the command. then says what follows.
func askEach(
	batch int, keys []string, ask func(key string) [][]byte,
	take func(key string, v resp.Value, err error) error, then func() (Reply, *Step),
) (Reply, *Step) {
	if len(keys) == 0 {
		return then()
	}
	asked := keys[:min(len(keys), batch)]
	questions := Commands{Further: true}
	for _, key := range asked {
		questions.List = append(questions.List, ask(key))
	}
	return Reply{}, &Step{Asks: questions, Finish: func(
		answer script.Answer, err error,
	) (Reply, *Step) {
		for i := 0; i < len(answer.Raw) && err == nil; i++ {
			v, failed := script.ParseReply(answer.Raw[i])
			if err = take(asked[i], v, failed); err == errAgain {
				return askEach(1, keys[i:], ask, take, then)
			}
		}
		if err != nil {
			return errorReply(err), nil
		}
		return askEach(visibleBatch, keys[len(asked):], ask, take, then)
	}}
}

// readable asks which of the keys the user may read, and notes those in may. PTTL is a command that
// LOCK's users may run, and the upstream checks the key before anything else. then says what
// follows. The first key is asked about alone: Redis closes the connection of a client that has not
// logged in when its answers fill more than 1 KB.
func readable(keys []string, may map[string]bool, then func() (Reply, *Step)) (Reply, *Step) {
	ask := func(key string) [][]byte { return wordsOf("PTTL", key) }
	return askEach(1, keys, ask, func(key string, _ resp.Value, err error) error {
		said, _ := err.(script.ServerError)
		if err != nil && !script.HasCode(said, "NOPERM") {
			return err
		}
		may[key] = err == nil
		return nil
	}, then)
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
		return refusedStep(err)
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
	reply := resp.Array()
	for _, c := range list[:min(len(list), o.Count)] {
		reply.Elems = append(reply.Elems, costReply(c))
	}
	return valueReply(reply)
}

// maxBlamed bounds the holders that LOCKTOP names.
const maxBlamed = 5

func costReply(c journal.Cost) resp.Value {
	blame := resp.Map()
	for _, b := range c.Blame {
		if len(blame.Elems) < 2*maxBlamed && b.Wait >= time.Millisecond {
			who := cmp.Or(b.Holder, "unknown")
			blame.Elems = append(blame.Elems, resp.Bulk(who), milliseconds(b.Wait))
		}
	}
	reply := resp.Map(
		"key", resp.Bulk(c.Key),
		"acquired", resp.Int(int(c.Acquired)),
		"refused", resp.Int(int(c.Refused)),
		"waits", resp.Int(int(c.Waits)),
		"wait_ms", milliseconds(c.Wait),
		"longest_wait_ms", milliseconds(c.LongestWait),
		"hold_ms", milliseconds(c.Hold),
		"longest_hold_ms", milliseconds(c.LongestHold),
		"blame", blame,
	)
	if key, ok := keyname.MadeBy(c.Key); ok {
		reply.Elems = append(reply.Elems, resp.Map("makes", resp.Bulk(key)).Elems...)
	}
	return reply
}

// beginLog is LOCKLOG [key] [COUNT n].
func (l *queries) beginLog(c Client, args [][]byte) *Step {
	o, err := syntax.ParseLog(args)
	if err != nil {
		return refusedStep(err)
	}
	return &Step{Finish: func(script.Answer, error) (Reply, *Step) {
		return l.logOf(o.Count, 10*o.Count, map[string]bool{}, func(e *journal.Event) bool {
			return e.DB == c.As.DB && (!o.One || e.Key == o.Key) && e.Kind <= journal.Deleted
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
		reply, now := resp.Array(), time.Now()
		for _, e := range events {
			if may[e.Key] && len(reply.Elems) < count {
				reply.Elems = append(reply.Elems, eventReply(e, now))
			}
		}
		if len(reply.Elems) >= count || !more || len(may) >= maxVisible {
			return valueReply(reply), nil
		}
		return l.logOf(count, 4*limit, may, want)
	})
}

func eventReply(e journal.Event, now time.Time) resp.Value {
	token, ago := resp.Null, e.Ago()
	if e.Token != 0 {
		token = resp.Int(e.Token)
	}
	return resp.Map(
		"at_ms", resp.Int(now.Add(-ago).UnixMilli()),
		"event", resp.Bulk(e.Kind.String()),
		"key", resp.Bulk(e.Key),
		"token", token,
		"owner", resp.Bulk(e.Owner),
		"client", resp.Bulk(e.Client),
		"wait_ms", milliseconds(e.Wait),
		"hold_ms", milliseconds(e.Hold),
		"ago_ms", milliseconds(ago),
		"note", resp.Text(e.Note),
	)
}

func milliseconds(d time.Duration) resp.Value { return resp.Int(d.Milliseconds()) }
