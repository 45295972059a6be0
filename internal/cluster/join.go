package cluster

import (
	"bytes"
	"slices"
	"strconv"

	"lockproxy/internal/resp"
)

// A joiner makes one reply out of those of the parts of a request, in the order of the parts. They are raw, and none of them is
// an error. It is pure. What doesn't look as expected is given to the client as the first part has it.
type joiner func(replies [][]byte) []byte

// joinFirst is for those that are all the same, as OK.
func joinFirst(replies [][]byte) []byte { return replies[0] }

// joinSum adds up integers.
func joinSum(replies [][]byte) []byte {
	return joinInts(replies, func(a, b int64) int64 { return a + b })
}

// joinMin is the smallest of integers.
func joinMin(replies [][]byte) []byte {
	return joinInts(replies, func(a, b int64) int64 { return min(a, b) })
}

func joinInts(replies [][]byte, fold func(a, b int64) int64) []byte {
	total := int64(0)
	for i, raw := range replies {
		n, ok := resp.ParseInt(bytes.TrimRight(raw[1:], "\r\n"))
		if raw[0] != ':' || !ok {
			return replies[0]
		}
		if i == 0 {
			total = n
		} else {
			total = fold(total, n)
		}
	}
	return append(strconv.AppendInt([]byte{':'}, total, 10), '\r', '\n')
}

// joinMinEach is the smallest of the integers at each place of arrays of integers: WAITAOF, SCRIPT EXISTS.
func joinMinEach(replies [][]byte) []byte { return joinEach(replies, joinMin) }

// joinSumEach adds up at each place, and takes what isn't an integer from the first: PUBSUB NUMSUB.
func joinSumEach(replies [][]byte) []byte { return joinEach(replies, joinSum) }

func joinEach(replies [][]byte, fold joiner) []byte {
	kind, first, err := resp.Elements(replies[0])
	if err != nil {
		return replies[0]
	}
	columns := make([][][]byte, len(first))
	for _, raw := range replies {
		_, elems, err := resp.Elements(raw)
		if err != nil || len(elems) != len(first) {
			return replies[0]
		}
		for i, elem := range elems {
			columns[i] = append(columns[i], elem)
		}
	}
	for i := range first {
		first[i] = fold(columns[i])
	}
	return resp.AppendAggregate(nil, kind, first)
}

// joinAll puts the elements of all behind one another.
func joinAll(replies [][]byte) []byte {
	var all [][]byte
	for _, raw := range replies {
		_, elems, err := resp.Elements(raw)
		if err != nil {
			return replies[0]
		}
		all = append(all, elems...)
	}
	return resp.AppendAggregate(nil, replies[0][0], all)
}

// joinDistinct does so but for those that have been there before.
func joinDistinct(replies [][]byte) []byte {
	joined := joinAll(replies)
	kind, elems, err := resp.Elements(joined)
	if err != nil {
		return replies[0]
	}
	seen := map[string]bool{}
	elems = slices.DeleteFunc(elems, func(elem []byte) bool {
		known := seen[string(elem)]
		seen[string(elem)] = true
		return known
	})
	return resp.AppendAggregate(nil, kind, elems)
}

// joinText puts texts behind one another.
func joinText(replies [][]byte) []byte {
	var text []byte
	for _, raw := range replies {
		v, err := resp.ParseValue(raw)
		if err != nil || v.Type != '$' && v.Type != '=' {
			return replies[0]
		}
		text = append(text, v.Text...)
	}
	if replies[0][0] == '=' {
		return append(appendLength(nil, '=', len(text)), append(text, '\r', '\n')...)
	}
	return append(appendLength(nil, '$', len(text)), append(text, '\r', '\n')...)
}

func appendLength(dst []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(dst, kind), int64(n), 10), '\r', '\n')
}

// joinPlaces puts the elements of arrays where places says: element j of reply i at places[i][j]. For MGET.
func joinPlaces(places [][]int, n int) joiner {
	return func(replies [][]byte) []byte {
		whole := make([][]byte, n)
		for i, raw := range replies {
			_, elems, err := resp.Elements(raw)
			if err != nil || len(elems) != len(places[i]) {
				return resp.AppendError(nil, "ERR a node has answered a part of the request otherwise than it should")
			}
			for j, elem := range elems {
				whole[places[i][j]] = elem
			}
		}
		return resp.AppendAggregate(nil, '*', whole)
	}
}

// isError reports whether a raw reply is one.
func isError(raw []byte) bool { return len(raw) > 0 && (raw[0] == '-' || raw[0] == '!') }

// joinLargest is the largest of integers, or if they aren't the first reply.
func joinLargest(replies [][]byte) []byte {
	return joinInts(replies, func(a, b int64) int64 { return max(a, b) })
}

// failurePrefix begins the replies that Options.Failure makes.
const failurePrefix = "-UPSTREAM "

// isFailure reports whether a reply says that a node could not be asked, or was lost.
func isFailure(raw []byte) bool { return bytes.HasPrefix(raw, []byte(failurePrefix)) }

// unknownOutcome reports whether it says that the request may have run.
func unknownOutcome(raw []byte) bool {
	return isFailure(raw) && bytes.Contains(raw, []byte("whether the command ran is unknown"))
}
