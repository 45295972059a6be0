package lockcmd

import (
	"strconv"
	"strings"

	"lockproxy/internal/names"
)

// beginReleaseAll makes the call that releases several locks of one token. It names no waiters:
// they poll when it has been answered.
func (l *releases) beginReleaseAll(
	client Client, keys [][]byte, p proof,
) (calls []*unlockCall, c Call) {
	as := client.As
	kinds := make([]string, len(keys))
	for i, key := range keys {
		id := names.Lock{DB: as.DB, Key: string(key)}
		client.suspend(id, p)
		offer, _ := l.queues.offer(id, noWaiter, true)
		kinds[i] = offer.kind
		r := &unlockCall{by: client.Holder, id: id, as: as, proof: p, handOver: offer}
		r.Call.Script = unlockScript
		calls = append(calls, r)
	}
	first := calls[0].id
	c = l.call(unallScript, first.Key, noFastPath, strings.Join(kinds, " "),
		p.kind, p.value, l.retention, l.proxy, "KIND", "0", l.unit(), "-", "-", "-", "0",
		milliseconds(reservation), strconv.Itoa(as.DB), l.slotTag(first.Key),
		l.queues.waitsAs(first.Key, false), milliseconds(pollPatience),
		milliseconds(pollReservation), "-", "-")
	for _, r := range calls[1:] {
		c.addLock(r.id.Key)
	}
	return calls, c
}

// beginUnlockAll is UNLOCKALL token numkeys key [key …].
func (l *locking) beginUnlockAll(client Client, args [][]byte) *Step {
	p, err := parseToken(args[0], wantToken)
	if err != nil {
		return answered(errorReply(err))
	}
	keys, rest, err := parseKeys(args[1:])
	if err == nil && len(rest) > 0 {
		err = syntaxError(rest[0], "no more than numkeys keys")
	}
	if err != nil {
		return answered(errorReply(err))
	}
	calls, c := l.releases.beginReleaseAll(client, keys, p)
	return &Step{Call: &c, Finish: func(answer Answer, err error) (Reply, *Step) {
		if err = answer.failure(err); err == nil && len(answer.Elems) != len(calls) {
			err = unexpected(unallScript, answer.Value)
		}
		count, first := 0, err
		for i, r := range calls {
			var a Answer
			if err == nil {
				a.Value = answer.Elems[i]
			}
			released, _, failed := l.releases.finishRelease(r, a, err) // it names no waiter
			l.renewals.unlocked(client.Holder, r, released)
			if released {
				count++
			}
			if first == nil {
				first = failed
			}
		}
		if first != nil {
			return errorReply(first), nil
		}
		return intReply(int64(count)), nil
	}}
}
