package lockcmd

import (
	"cmp"
	"math"
	"slices"
	"strconv"

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
	return &Step{Do: [][][]byte{scan}, Finish: func(answer script.Answer, err error) (Reply, *Step) {
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

// heldOf makes LOCKSCAN's reply, of those locks that are held and of a kind that is wanted.
func (l *queries) heldOf(
	locks []string, cursor uint64, want func(kind string) bool,
) (Reply, *Step) {
	keys := resp.Array()
	return l.kinds(locks, false, func(key, kind string) {
		if kind != "" && want(kind) {
			keys.Elems = append(keys.Elems, resp.Bulk(key))
		}
	}, func() Reply {
		return valueReply(resp.Array(resp.Bulk(strconv.FormatUint(cursor, 10)), keys))
	})
}

// kinds asks, on the client's own connection, which kind of lock each key is, and calls found: ""
// if it is not held, is no lock, or the user may not see it. Then it replies what done says. Where
// the upstream does not have the script, the first key is asked about bySource, alone.
func (l *queries) kinds(
	keys []string, bySource bool, found func(key, kind string), done func() Reply,
) (Reply, *Step) {
	if len(keys) == 0 {
		return done(), nil
	}
	asked := keys[:min(len(keys), visibleBatch)]
	if bySource {
		asked = keys[:1]
	}
	step := &Step{Further: true}
	for _, key := range asked {
		c := l.infoCall(key)
		step.Do = append(step.Do, wordsOf(c.AppendWords(nil, bySource)...))
	}
	step.Finish = func(answer script.Answer, err error) (Reply, *Step) {
		for i := 0; i < len(answer.Raw) && err == nil; i++ {
			var v resp.Value
			v, err = script.ParseReply(answer.Raw[i])
			if said, _ := err.(script.ServerError); script.HasCode(said, "NOSCRIPT") {
				return l.kinds(keys[i:], true, found, done)
			}
			err = foundKind(keys[i], v, err, found)
		}
		if err != nil {
			return errorReply(err), nil
		}
		return l.kinds(keys[len(asked):], false, found, done)
	}
	return Reply{}, step
}

// foundKind calls found with the answer about a key. It returns an error that ends the command.
func foundKind(key string, v resp.Value, err error, found func(key, kind string)) error {
	said, _ := err.(script.ServerError)
	kind := ""
	switch {
	case script.HasCode(said, "NOPERM", "WRONGTYPE"):
	case err != nil:
		return err
	case len(v.Elems) >= len(lockinfo.Fields) && string(v.Elems[0].Text) == "held":
		kind = string(v.Elems[1].Text)
	}
	found(key, kind)
	return nil
}

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
