package cluster

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"lockproxy/internal/resp"
)

// A joiner makes one reply out of those of a request's parts, in their order. They are raw, and
// none is an error. If they are not as expected it returns the first.
type joiner func(replies [][]byte) []byte

// joinFirst is for replies that are all the same, such as OK.
func joinFirst(replies [][]byte) []byte { return replies[0] }

var (
	joinSum = joinInts(func(a, b int64) int64 { return a + b })
	joinMin = joinInts(func(a, b int64) int64 { return min(a, b) })
	joinMax = joinInts(func(a, b int64) int64 { return max(a, b) })
	// joinMinEach is the least integer at each place of arrays: WAITAOF, SCRIPT EXISTS.
	joinMinEach = joinEach(joinMin)
	// joinSumEach is the sum at each place, or what the first has if it is no integer: PUBSUB
	// NUMSUB.
	joinSumEach = joinEach(joinSum)
)

func joinInts(fold func(a, b int64) int64) joiner {
	return func(replies [][]byte) []byte {
		total := int64(0)
		for i, raw := range replies {
			n, ok := resp.ParseInt(lineOf(raw))
			switch {
			case raw[0] != ':' || !ok:
				return replies[0]
			case i == 0:
				total = n
			default:
				total = fold(total, n)
			}
		}
		return integer(total)
	}
}

func integer(n int64) []byte { return append(strconv.AppendInt([]byte{':'}, n, 10), '\r', '\n') }

func joinEach(fold joiner) joiner {
	return func(replies [][]byte) []byte {
		var columns [][][]byte
		for i, raw := range replies {
			_, elems, err := resp.Elements(raw)
			if i == 0 {
				columns = make([][][]byte, len(elems))
			}
			if err != nil || len(elems) != len(columns) {
				return replies[0]
			}
			for j, elem := range elems {
				columns[j] = append(columns[j], elem)
			}
		}
		joined := make([][]byte, len(columns))
		for i, column := range columns {
			joined[i] = fold(column)
		}
		return resp.AppendAggregate(nil, replies[0][0], joined)
	}
}

// joinAll concatenates arrays.
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

// joinDistinct concatenates arrays, with each element once.
func joinDistinct(replies [][]byte) []byte {
	kind, elems, err := resp.Elements(joinAll(replies))
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

// textOf is the text of a reply that is a string, without the format that RESP3's verbatim strings
// have in front.
func textOf(raw []byte) (text string, ok bool) {
	v, err := resp.ParseValue(raw)
	text = string(v.Text)
	if v.Type == '=' {
		text = strings.TrimPrefix(text, "txt:")
	}
	return text, err == nil && (v.Type == '$' || v.Type == '=')
}

// textReply is a bulk string, or a verbatim string.
func textReply(kind byte, text string) []byte {
	if kind == '=' {
		text = "txt:" + text
	}
	raw := bulk(text)
	raw[0] = kind
	return raw
}

func bulk(text string) []byte {
	return resp.AppendValue(nil, resp.Bulk(text), 2)
}

// joinReplies joins replies some of which can be errors. An error is the reply, unless any says
// that it is enough that one node has succeeded.
func joinReplies(join joiner, any bool) func(replies [][]byte) []byte {
	return func(replies [][]byte) []byte {
		var good [][]byte
		for _, raw := range replies {
			if !isError(raw) {
				good = append(good, raw)
			}
		}
		if len(good) == 0 || len(good) < len(replies) && !any {
			return failureOf(replies)
		}
		return join(good)
	}
}

// failureOf is the error that the client gets for replies some of which are errors. One that leaves
// the outcome unknown comes before others. If a node has done its part and another could not be
// reached, the outcome is unknown too.
func failureOf(replies [][]byte) []byte {
	var found []byte
	partlyDone := false
	for _, raw := range replies {
		switch {
		case !isError(raw):
			partlyDone = true
		case found == nil || isUnknown(raw):
			found = raw
		}
	}
	if partlyDone && isFailure(found) && !isUnknown(found) {
		why := string(lineOf(found)[len(failurePrefix)-1:])
		return resp.AppendError(nil, "UPSTREAM a part of the request was run by its node, but "+
			"another node could not be reached: the outcome is unknown in part ("+why+")")
	}
	return found
}

// isError reports whether a raw reply is an error.
func isError(raw []byte) bool { return len(raw) > 0 && (raw[0] == '-' || raw[0] == '!') }

// failurePrefix begins the replies that Options.Failure makes.
const failurePrefix = "-UPSTREAM "

func isFailure(raw []byte) bool { return bytes.HasPrefix(raw, []byte(failurePrefix)) }

// isUnknown reports whether a reply says that the request may have run.
func isUnknown(raw []byte) bool {
	return isFailure(raw) && bytes.Contains(raw, []byte("whether the command ran is unknown"))
}
