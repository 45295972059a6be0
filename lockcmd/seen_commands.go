package lockcmd

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/resp"
)

// LOCKTOP and LOCKLOG: what this proxy has seen of the locks in the client's database that its user
// may read.

const (
	// maxVisible bounds the keys for which one command asks whether the user may read them.
	maxVisible = 10000
	// visibleBatch is how many of them it asks about together.
	visibleBatch = 250
	// maxListed bounds COUNT of LOCKTOP and LOCKLOG.
	maxListed = 10000
	// listed is the default of COUNT.
	listed = 10
)

// askReadable asks, on the client's own connection, which of the keys its user may read, and notes
// those in may. PTTL is a command that LOCK's users may run, and the upstream checks the key before
// anything else. began is when the client's command began.
func askReadable(
	ctx context.Context, began time.Time, s Session, keys []string, may map[string]bool,
) error {
	for batch := range slices.Chunk(keys, visibleBatch) {
		if overdue(ctx, began) {
			return errOverdue
		}
		asks := make([][][]byte, len(batch))
		for i, key := range batch {
			asks[i] = words("PTTL", key)
		}
		replies, err := s.Do(asks...)
		if err != nil {
			return err
		}
		for i, raw := range replies {
			_, err := parseReply(raw)
			said, _ := err.(ServerError)
			if err != nil && !hasCode(said, "NOPERM") {
				return err
			}
			may[batch[i]] = err == nil
		}
	}
	return nil
}

// topOptions are the arguments of LOCKTOP.
type topOptions struct {
	by     string // wait, hold or count
	count  int
	shapes bool
}

// parseTop reads "[BY wait|hold|count] [COUNT n] [SHAPES]"; each option once, in any order.
func parseTop(args [][]byte) (o topOptions, err error) {
	for ; len(args) > 0; args = args[1:] {
		switch option := strings.ToUpper(string(args[0])); {
		case option == "SHAPES" && !o.shapes:
			o.shapes = true
		case option == "BY" && o.by == "" && len(args) > 1:
			o.by = strings.ToLower(string(args[1]))
			if o.by != "wait" && o.by != "hold" && o.by != "count" {
				return o, syntaxError(args[1], wantTop)
			}
			args = args[1:]
		case option == "COUNT" && o.count == 0 && len(args) > 1:
			if o.count, err = parseCount(args[1]); err != nil {
				return o, err
			}
			args = args[1:]
		default:
			return o, syntaxError(args[0], wantTop)
		}
	}
	o.by, o.count = cmp.Or(o.by, "wait"), cmp.Or(o.count, listed)
	return o, nil
}

func parseCount(arg []byte) (int, error) {
	n, ok := resp.ParseInt(arg)
	if !ok || n < 1 {
		return 0, integerError(arg, wantPositive)
	}
	return int(min(n, maxListed)), nil
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
		list[i].Key = ShapeOf(list[i].Key)
	}
	return journal.Merge(list)
}

// runTop is LOCKTOP.
func (l *queries) runTop(ctx context.Context, s Session, args [][]byte) Reply {
	o, err := parseTop(args)
	if err != nil {
		return errorReply(err)
	}
	db, began := s.Identity().DB, time.Now()
	all := l.Costs(journal.Window, func(id LockID) bool { return id.DB == db })
	SortCosts(all, o.by)
	all = all[:min(len(all), maxVisible)]
	var list []journal.Cost
	may := map[string]bool{}
	for batch := range slices.Chunk(all, visibleBatch) {
		keys := make([]string, len(batch))
		for i := range batch {
			keys[i] = batch[i].Key
		}
		if err := askReadable(ctx, began, s, keys, may); err != nil {
			return errorReply(err)
		}
		for _, c := range batch {
			if may[c.Key] {
				list = append(list, c)
			}
		}
		if !o.shapes && len(list) >= o.count {
			break
		}
	}
	if o.shapes {
		list = MergeShapes(list)
		SortCosts(list, o.by)
	}
	reply := Reply{Kind: ArrayReply}
	for _, c := range list[:min(len(list), o.count)] {
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
	return mapReply(
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

// runLog is LOCKLOG [key] [COUNT n].
func (l *queries) runLog(ctx context.Context, s Session, args [][]byte) Reply {
	count, key, one := listed, "", len(args)%2 == 1
	if one {
		key, args = string(args[0]), args[1:]
	}
	if len(args) > 0 {
		var err error
		if !strings.EqualFold(string(args[0]), "COUNT") {
			return errorReply(syntaxError(args[0], "COUNT n"))
		}
		if count, err = parseCount(args[1]); err != nil {
			return errorReply(err)
		}
	}
	db, began := s.Identity().DB, time.Now()
	may := map[string]bool{}
	for limit := 10 * count; ; limit *= 4 { // the user may not read some
		events, more := l.Events(limit, func(e *journal.Event) bool {
			return e.DB == db && (!one || e.Key == key) && e.Kind <= journal.Deleted
		})
		reply, err := logReply(ctx, began, s, events, count, may)
		if err != nil {
			return errorReply(err)
		}
		if len(reply.Elems) >= count || !more || len(may) >= maxVisible {
			return reply
		}
	}
}

// logReply is LOCKLOG's reply: the events of keys that the user may read. It notes those in may.
func logReply(
	ctx context.Context, began time.Time, s Session, events []Event, count int,
	may map[string]bool,
) (Reply, error) {
	var ask []string
	for _, e := range events {
		if _, known := may[e.Key]; !known && len(may) < maxVisible {
			may[e.Key] = false
			ask = append(ask, e.Key)
		}
	}
	if err := askReadable(ctx, began, s, ask, may); err != nil {
		return Reply{}, err
	}
	reply, now := Reply{Kind: ArrayReply}, time.Now()
	for _, e := range events {
		if may[e.Key] && len(reply.Elems) < count {
			reply.Elems = append(reply.Elems, eventReply(e, now))
		}
	}
	return reply, nil
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
