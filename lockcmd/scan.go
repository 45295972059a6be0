package lockcmd

import (
	"context"
	"strings"

	"lockproxy/internal/resp"
)

// runScan is LOCKSCAN: a SCAN for lock records. The reply names those whose locks are held now.
func (l *Locks) runScan(_ context.Context, s Session, args [][]byte) Reply {
	o, err := parseScan(args)
	if err != nil {
		return errorReply(err)
	}
	pattern := closedGlob(o.pattern) + recordInfix + "???"
	replies, err := s.Do(words("SCAN", o.cursor, "MATCH", pattern, "COUNT", o.count))
	if err != nil {
		return errorReply(err)
	}
	v, err := resp.ParseValue(replies[0])
	switch {
	case err != nil:
		return errorReply(err)
	case v.IsError():
		return errorReply(errorOf(v.Text))
	case len(v.Elems) != 2:
		return errorReply(unexpected(infoScript, v))
	}
	keys := Reply{Kind: ArrayReply}
	for _, e := range v.Elems[1].Elems {
		key, ok := lockOf(string(e.Text))
		if !ok {
			continue
		}
		info, err := l.ask(s, infoScript, key)
		if said, ok := err.(ServerError); ok && hasCode(said, "NOPERM", "WRONGTYPE") {
			continue // not this user's to see, or not a lock
		}
		if err != nil {
			return errorReply(err)
		}
		if _, held := heldInfo(info); held {
			keys.Elems = append(keys.Elems, bulkReply(key))
		}
	}
	return Reply{Kind: ArrayReply, Elems: []Reply{bulkReply(string(v.Elems[0].Text)), keys}}
}

// closedGlob makes a pattern of SCAN mean the same whatever follows it: a backslash at its end, or
// a class that is not closed, would take in what follows.
func closedGlob(pattern string) string {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			if i++; i == len(pattern) {
				return pattern + `\`
			}
		case '[':
			if i++; i < len(pattern) && pattern[i] == '^' {
				i++
			}
			for ; i < len(pattern) && pattern[i] != ']'; i++ {
				left := len(pattern) - i
				switch {
				case left == 1 && (pattern[i] == '\\' || pattern[i] == '-'):
					return pattern[:i] + `\` + pattern[i:] + "]"
				case pattern[i] == '\\':
					i++
				case left > 2 && pattern[i+1] == '-':
					i += 2
				}
			}
			if i >= len(pattern) {
				return pattern + "]"
			}
		}
	}
	return pattern
}

// lockOf returns the lock whose record has this name.
func lockOf(record string) (key string, ok bool) {
	i := strings.LastIndex(record, recordInfix)
	if i < 0 {
		return "", false
	}
	key = record[:i]
	return key, RecordKey([]byte(key)) == record
}
