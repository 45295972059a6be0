package lockcmd

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// foreignCursor is the first of LOCKSCAN's cursors for locks of foreign clients. SCAN's are lower.
const foreignCursor = 1 << 63

// beginScan is LOCKSCAN: a SCAN for lock records, then the locks of foreign clients that were seen
// here. The reply names those that are held now.
func (l *queries) beginScan(c Client, args [][]byte) *Step {
	o, err := syntax.ParseScan(args)
	if err != nil {
		return refusedStep(err)
	}
	cursor, _ := strconv.ParseUint(o.Cursor, 10, 64)
	if cursor >= foreignCursor || o.Kind == script.KindTimestamp || o.Kind == script.KindOther {
		found, next := l.scanForeign(c.As.DB, max(cursor, foreignCursor), o)
		return &Step{Finish: func(script.Answer, error) (Reply, *Step) {
			return l.heldOf(found, next, func(kind string) bool {
				return kind != script.KindLockproxy && (kind == o.Kind || o.Kind == script.KindAll)
			})
		}}
	}
	scan := wordsOf("SCAN", o.Cursor, "MATCH", keyname.RecordPattern, "COUNT", o.Count)
	return &Step{Asks: Commands{List: [][][]byte{scan}}, Finish: func(
		answer script.Answer, err error,
	) (Reply, *Step) {
		found, next, err := scanned(answer, err, o)
		if err != nil {
			return errorReply(err), nil
		}
		if next == 0 && o.Kind == script.KindAll {
			next = foreignCursor
		}
		return l.heldOf(found, next, func(kind string) bool {
			return kind == script.KindLockproxy && (kind == o.Kind || o.Kind == script.KindAll)
		})
	}}
}

// heldOf makes LOCKSCAN's reply, of those locks that are held and of a kind that is wanted. It
// leaves out what is no lock, or the user may not see, and what somebody has written that makes the
// script fail. Where the upstream does not have the script, a key is asked about by the source.
func (l *queries) heldOf(
	locks []string, cursor uint64, want func(kind string) bool,
) (Reply, *Step) {
	keys, bySource := resp.Array(), false
	return askEach(visibleBatch, locks, func(key string) [][]byte {
		c := l.infoCall(key)
		return wordsOf(c.AppendWords(nil, bySource)...)
	}, func(key string, v resp.Value, err error) error {
		said, _ := err.(script.ServerError)
		if bySource = script.HasCode(said, "NOSCRIPT") && !bySource; bySource {
			return errAgain
		}
		if h, held := lockinfo.Read(v); err == nil && held && want(h.Kind) {
			keys.Elems = append(keys.Elems, resp.Bulk(key))
		}
		if script.HasCode(said, "NOPERM", "WRONGTYPE") ||
			strings.Contains(string(said), luaTypeError) {
			return nil
		}
		return err
	}, func() (Reply, *Step) {
		return valueReply(resp.Array(resp.Bulk(strconv.FormatUint(cursor, 10)), keys)), nil
	})
}

// luaTypeError is in what Lua says of a script that has met a value it was not made for.
const luaTypeError = ": attempt to "

// scanForeign is one step through the locks of foreign clients that were seen in a database. They
// come in the order of a hash, which stays the same while locks come and go.
func (l *queries) scanForeign(db int, cursor uint64, o syntax.Scan) (keys []string, next uint64) {
	count, _ := strconv.Atoi(o.Count)
	place := func(key string) uint64 { return l.seen.registry.Hash(key) | foreignCursor }
	for _, lock := range l.traffic.ForeignLocks(math.MaxInt) {
		if lock.DB == db && place(lock.Key) >= cursor && keyname.Match(o.Pattern, lock.Key) {
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

// scanned returns the locks of the records that SCAN has found, those that match.
func scanned(
	answer script.Answer, err error, o syntax.Scan,
) (keys []string, next uint64, failed error) {
	var v resp.Value
	if err == nil {
		v, err = script.ParseReply(answer.Raw[0])
	}
	switch {
	case err != nil:
		return nil, 0, err
	case len(v.Elems) != 2:
		return nil, 0, script.Unexpected(script.InfoScript, v)
	}
	for _, e := range v.Elems[1].Elems {
		if key, ok := keyname.LockOf(string(e.Text)); ok && keyname.Match(o.Pattern, key) {
			keys = append(keys, key)
		}
	}
	if next, err = strconv.ParseUint(string(v.Elems[0].Text), 10, 64); err != nil {
		return nil, 0, script.Unexpected(script.InfoScript, v)
	}
	return keys, next, nil
}
