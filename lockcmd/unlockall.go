package lockcmd

import (
	"strings"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// beginReleaseAll makes the call that releases several locks of one token. It names no waiters:
// they poll when it has been answered.
func (l *releases) beginReleaseAll(
	client Client, keys [][]byte, p script.Proof,
) (calls []*unlockCall, c script.Call) {
	as := client.As
	kinds := make([]string, len(keys))
	for i, key := range keys {
		id := names.Lock{DB: as.DB, Key: string(key)}
		client.Suspend(id, p)
		offer := l.queues.Of(id).Offer(queue.Nobody, true, time.Now())
		kinds[i] = offer.Kind
		r := &unlockCall{by: client.Holder, id: id, as: as, proof: p, handOver: offer}
		r.Call.Script = script.UnlockScript
		calls = append(calls, r)
	}
	locks := make([]string, len(calls))
	for i, r := range calls {
		locks[i] = r.id.Key
	}
	c = l.Scripts.UnlockAll(as.DB, locks, p, strings.Join(kinds, " "),
		l.queues.WaitsAs(locks[0], false, false))
	return calls, c
}

// beginUnlockAll is UNLOCKALL token numkeys key [key …].
func (l *locking) beginUnlockAll(client Client, args [][]byte) *Step {
	p, err := syntax.ParseToken(args[0], syntax.WantToken)
	if err != nil {
		return refusedStep(err)
	}
	keys, rest, err := syntax.ParseKeys(args[1:])
	if err == nil && len(rest) > 0 {
		err = syntax.Unexpected(rest[0], "no more than numkeys keys")
	}
	if err != nil {
		return refusedStep(err)
	}
	calls, c := l.releases.beginReleaseAll(client, keys, p)
	return &Step{Asks: Script{&c}, Finish: func(answer script.Answer, err error) (Reply, *Step) {
		answers, err := c.EachUnlocked(len(calls), answer, err)
		count, first := 0, err
		for i, r := range calls {
			released, _, failed := l.releases.finishRelease(r, answers[i], err) // it names no waiter
			l.renewals.Unlocked(client.Holder, r.id, p, r.token, released)
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
		return valueReply(resp.Int(count)), nil
	}}
}
