package lockcmd

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The kinds of locks, as info.lua names them, and a name for all.
const (
	kindLockproxy = "lockproxy"
	kindTimestamp = "timestamp"
	kindOther     = "other"
	kindAll       = "all"
)

// foreignCursor is the first of LOCKSCAN's cursors for locks of foreign clients. SCAN's are lower.
const foreignCursor = 1 << 63

// runScan is LOCKSCAN: a SCAN for lock records, then the locks of foreign clients that were seen
// here. The reply names those that are held now.
func (l *queries) runScan(ctx context.Context, s Session, args [][]byte) Reply {
	o, err := parseScan(args)
	if err != nil {
		return errorReply(err)
	}
	began := time.Now()
	cursor, _ := strconv.ParseUint(o.cursor, 10, 64)
	foreign := cursor >= foreignCursor || o.kind == kindTimestamp || o.kind == kindOther
	var found []string
	var next uint64
	if foreign {
		found, next = l.scanForeign(s.Identity().DB, max(cursor, foreignCursor), o)
	} else if found, next, err = l.scanRecords(s, o); err != nil {
		return errorReply(err)
	} else if next == 0 && o.kind == kindAll {
		next = foreignCursor
	}
	keys := Reply{Kind: ArrayReply}
	for batch := range slices.Chunk(found, visibleBatch) {
		if overdue(ctx, began) {
			return errorReply(errOverdue)
		}
		kinds, err := l.heldKinds(s, batch)
		if err != nil {
			return errorReply(err)
		}
		for i, kind := range kinds {
			if kind != "" && (kind != kindLockproxy) == foreign &&
				(kind == o.kind || o.kind == kindAll) {
				keys.Elems = append(keys.Elems, bulkReply(batch[i]))
			}
		}
	}
	return Reply{Kind: ArrayReply,
		Elems: []Reply{bulkReply(strconv.FormatUint(next, 10)), keys}}
}

// heldKinds asks, on the client's own connection, which kind of lock each key is: "" if it is not
// held, is no lock, or the user may not see it.
func (l *queries) heldKinds(s Session, keys []string) ([]string, error) {
	asks := make([][][]byte, len(keys))
	for i, key := range keys {
		c := l.call(infoScript, key, noFastPath, "")
		asks[i] = words("EVALSHA", c.Script.SHA, "2", c.Keys[0], c.Keys[1])
		asks[i] = append(asks[i], words(c.Args[:]...)...)
	}
	replies, err := s.Do(asks...)
	if err != nil {
		return nil, err
	}
	var kinds []string
	for i, raw := range replies {
		v, err := parseReply(raw)
		said, _ := err.(ServerError)
		lost := hasCode(said, "NOSCRIPT")
		if lost {
			v, err = l.ask(s, infoScript, keys[i]) // it loads the script
			said, _ = err.(ServerError)
		}
		if err != nil && !hasCode(said, "NOPERM", "WRONGTYPE") {
			return nil, err
		}
		kind := ""
		if err == nil && len(v.Elems) >= len(infoFields) && string(v.Elems[0].Text) == "held" {
			kind = string(v.Elems[1].Text)
		}
		kinds = append(kinds, kind)
		if lost && i+1 < len(keys) {
			rest, err := l.heldKinds(s, keys[i+1:])
			return append(kinds, rest...), err
		}
	}
	return kinds, nil
}

// scanForeign is one step through the locks of foreign clients that were seen in a database. They
// come in the order of a hash, which stays the same while locks come and go.
func (l *queries) scanForeign(db int, cursor uint64, o scanOptions) (keys []string, next uint64) {
	count, _ := strconv.Atoi(o.count)
	place := func(key string) uint64 { return l.seen.registry.hash(key) | foreignCursor }
	for _, lock := range l.traffic.ForeignLocks(math.MaxInt) {
		if lock.DB == db && place(lock.Key) >= cursor && GlobMatch(o.pattern, lock.Key) {
			keys = append(keys, lock.Key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(place(a), place(b)) })
	for count < len(keys) && place(keys[count]) == place(keys[count-1]) {
		count++ // otherwise the next step would begin with the same
	}
	if count >= len(keys) {
		return keys, 0
	}
	return keys[:count], place(keys[count])
}

// recordPattern is SCAN's pattern for lock records.
const recordPattern = "*" + recordInfix + "???"

// scanRecords is one step of a SCAN for lock records. It returns their locks that match.
func (l *queries) scanRecords(s Session, o scanOptions) (keys []string, next uint64, err error) {
	replies, err := s.Do(words("SCAN", o.cursor, "MATCH", recordPattern, "COUNT", o.count))
	if err != nil {
		return nil, 0, err
	}
	v, err := parseReply(replies[0])
	switch {
	case err != nil:
		return nil, 0, err
	case len(v.Elems) != 2:
		return nil, 0, unexpected(infoScript, v)
	}
	for _, e := range v.Elems[1].Elems {
		if key, ok := lockOf(string(e.Text)); ok && GlobMatch(o.pattern, key) {
			keys = append(keys, key)
		}
	}
	if next, err = strconv.ParseUint(string(v.Elems[0].Text), 10, 64); err != nil {
		return nil, 0, unexpected(infoScript, v)
	}
	return keys, next, nil
}

// lockOf returns the lock of a record, by the record's name.
func lockOf(record string) (key string, ok bool) {
	i := strings.LastIndex(record, recordInfix)
	if i < 0 {
		return "", false
	}
	key = record[:i]
	return key, RecordKey([]byte(key)) == record
}
