package lockcmd

import (
	"context"
	"strings"
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/resp"
)

func (l *Locks) beginRelock(s Session, args [][]byte) (step Step, ok bool) {
	p, err := parseProof(args[1:2], "")
	if err == nil && p.kind != "token" {
		err = errInteger
	}
	if err != nil {
		return answered(errorReply(err)), true
	}
	timeout, err := parseTimeout(args[2], l.cfg.MaxTimeout)
	if err != nil {
		return answered(errorReply(err)), true
	}
	at, asked := lineKey{s.Identity().DB, string(args[0])}, monotonic.Now()
	c := l.relockCall(at, p.value, timeout, false)
	return Step{c, func(_ context.Context, answer Answer, err error) Reply {
		done, err := c.ints(1, answer, err)
		if err == nil && done[0] == 1 {
			err = answer.missing(c.Confirm, notLonger)
		}
		if err != nil {
			return errorReply(err)
		}
		if done[0] == 1 {
			l.relocked(s.Holder(), at, p.value, timeout, asked)
		}
		return intReply(done[0])
	}}, true
}

// relockCall has the lock of a token run for timeout again. session says that the proxy renews it.
func (l *Locks) relockCall(at lineKey, token string, timeout time.Duration, session bool) *Call {
	c := l.call(relockScript, at.key, longWay, "", token, milliseconds(timeout), l.unit(), l.retention, flag(session))
	c.Confirm = l.cfg.replicas()
	return &c
}

// infoFields are the names of what info.lua returns, in order.
var infoFields = []string{"state", "kind", "token", "owner", "client", "acquired_ms", "expires_ms", "remaining_ms", "session"}

// beginInfo is LOCKINFO.
func (l *Locks) beginInfo(s Session, args [][]byte) (step Step, ok bool) {
	c := l.call(infoScript, string(args[0]), longWay, "")
	return Step{&c, func(_ context.Context, answer Answer, err error) Reply {
		return l.info(lineKey{s.Identity().DB, c.Keys[0]}, answer.Value, answer.failure(err))
	}}, true
}

// info is LOCKINFO's reply, from what the script says. waiters counts those at this proxy.
func (l *Locks) info(at lineKey, v resp.Value, err error) Reply {
	switch {
	case err != nil:
		return errorReply(err)
	case v.IsNull():
		return nullReply
	case len(v.Elems) != len(infoFields):
		return errorReply(unexpected(infoScript, v))
	}
	info := Reply{Kind: MapReply}
	for i, e := range v.Elems {
		field := nullReply
		switch e.Type {
		case ':':
			field = intReply(e.Int)
		case '$':
			field = bulkReply(string(e.Text))
		}
		info.Elems = append(info.Elems, bulkReply(infoFields[i]), field)
	}
	l.mu.Lock()
	waiters := 0
	if ln := l.lines[at]; ln != nil {
		waiters = ln.len()
	}
	l.mu.Unlock()
	info.Elems = append(info.Elems, bulkReply("waiters"), intReply(int64(waiters)))
	return info
}

// runScan is LOCKSCAN: a SCAN for companions, of which those whose locks are held now are named.
func (l *Locks) runScan(_ context.Context, s Session, args [][]byte) Reply {
	o, err := parseScan(args)
	if err != nil {
		return errorReply(err)
	}
	replies, err := s.Do(words("SCAN", o.cursor, "MATCH", closedGlob(o.pattern)+companionInfix+"???", "COUNT", o.count))
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
		if len(info.Elems) > 1 && string(info.Elems[0].Text) == "held" && string(info.Elems[1].Text) == "lockproxy" {
			keys.Elems = append(keys.Elems, bulkReply(key))
		}
	}
	return Reply{Kind: ArrayReply, Elems: []Reply{bulkReply(string(v.Elems[0].Text)), keys}}
}

// closedGlob is a pattern of SCAN's that means the same whatever follows it: a backslash at its end, and a
// class that is not closed, would take that in.
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

// lockOf returns the lock whose companion has this name.
func lockOf(companion string) (key string, ok bool) {
	i := strings.LastIndex(companion, companionInfix)
	if i < 0 {
		return "", false
	}
	key = companion[:i]
	return key, CompanionKey([]byte(key)) == companion
}
