package cluster

// How the masters' answers to LATENCY become one.

import (
	"cmp"
	"maps"
	"slices"

	"lockproxy/internal/resp"
)

// intOf is a reply's integer; 0 if it is none.
func intOf(raw []byte) int64 {
	v, err := resp.ParseValue(raw)
	if err != nil {
		return 0
	}
	return v.Int
}

// joinByTime is for LATENCY HISTORY: arrays that begin with a time, the earliest first.
func joinByTime(replies [][]byte) []byte {
	kind, elems, err := resp.Elements(joinAll(replies))
	if err != nil {
		return replies[0]
	}
	slices.SortStableFunc(elems, func(a, b []byte) int { return cmp.Compare(timeOf(a), timeOf(b)) })
	return resp.AppendAggregate(nil, kind, elems)
}

func timeOf(raw []byte) int64 {
	_, elems, err := resp.Elements(raw)
	if err != nil || len(elems) == 0 {
		return 0
	}
	return intOf(elems[0])
}

// joinLatestEvents is for LATENCY LATEST: arrays of an event's name, the time when it was last, its
// latency then, and the greatest.
func joinLatestEvents(replies [][]byte) []byte {
	kind, all, err := resp.Elements(joinAll(replies))
	if err != nil {
		return replies[0]
	}
	at := map[string]int{} // of the event in events
	var events [][][]byte
	for _, raw := range all {
		_, event, err := resp.Elements(raw)
		if err != nil || len(event) < 4 {
			return replies[0]
		}
		i, known := at[string(event[0])]
		if !known {
			at[string(event[0])] = len(events)
			events = append(events, event)
			continue
		}
		greatest := events[i][3]
		if intOf(event[3]) > intOf(greatest) {
			greatest = event[3]
		}
		if intOf(event[1]) > intOf(events[i][1]) {
			events[i] = event
		}
		events[i][3] = greatest
	}
	joined := make([][]byte, len(events))
	for i, event := range events {
		joined[i] = resp.AppendAggregate(nil, '*', event)
	}
	return resp.AppendAggregate(nil, kind, joined)
}

// histogram is how many calls of a command took at most each number of microseconds. All masters
// have the same bounds, and leave out those at which nothing is added.
type histogram struct {
	calls   int64
	atMost  map[int64]int64 // by bound: calls above the bound before, up to it
	pairs   byte            // the types of the reply and of the bounds in it
	bounds  byte
	headers [2][]byte // "calls" and "histogram_usec"
}

// joinHistograms is for LATENCY HISTOGRAM.
func joinHistograms(replies [][]byte) []byte {
	var names []string
	byName := map[string]*histogram{}
	kind := replies[0][0]
	for _, raw := range replies {
		_, elems, err := resp.Elements(raw)
		if err != nil || len(elems)%2 != 0 {
			return replies[0]
		}
		for i := 0; i < len(elems); i += 2 {
			name := string(elems[i])
			h := byName[name]
			if h == nil {
				h = &histogram{atMost: map[int64]int64{}}
				names, byName[name] = append(names, name), h
			}
			if !h.add(elems[i+1]) {
				return replies[0]
			}
		}
	}
	var joined [][]byte
	for _, name := range names {
		joined = append(joined, []byte(name), byName[name].encode())
	}
	return resp.AppendAggregate(nil, kind, joined)
}

// add adds one master's; false says that it is not as expected.
func (h *histogram) add(raw []byte) bool {
	pairs, fields, err := resp.Elements(raw)
	if err != nil || len(fields) != 4 {
		return false
	}
	bounds, counts, err := resp.Elements(fields[3])
	if err != nil || len(counts)%2 != 0 {
		return false
	}
	h.pairs, h.bounds, h.headers = pairs, bounds, [2][]byte{fields[0], fields[2]}
	h.calls += intOf(fields[1])
	before := int64(0)
	for i := 0; i < len(counts); i += 2 {
		upTo := intOf(counts[i+1])
		h.atMost[intOf(counts[i])] += upTo - before
		before = upTo
	}
	return true
}

func (h *histogram) encode() []byte {
	var counts [][]byte
	upTo := int64(0)
	for _, bound := range slices.Sorted(maps.Keys(h.atMost)) {
		upTo += h.atMost[bound]
		counts = append(counts, integer(bound), integer(upTo))
	}
	return resp.AppendAggregate(nil, h.pairs, [][]byte{h.headers[0], integer(h.calls),
		h.headers[1], resp.AppendAggregate(nil, h.bounds, counts)})
}
