package lockcmd

import (
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// ONCE reads a value by a GET, and only if there is none, asks for the right to make it: the claim,
// a lock at a key next to the value's. once.lua takes that only while the value is missing, so no
// client makes what another has just made.
//
// A client that waits for the value waits for the claim. DONE stores it and frees the claim in one
// step, and tells all proxies that wait. There the first waiter reads the value for all of its
// login. Only if it finds none does it ask for the claim.

// beginOnce is ONCE.
func (l *waits) beginOnce(c Client, args [][]byte) *Step {
	o, err := syntax.ParseOnce(args[1:], l.cfg.MaxTimeout)
	if err == nil {
		err = l.permit(o)
	}
	if err != nil {
		return refusedStep(err)
	}
	o.Once, o.Value = true, string(args[0])
	return l.readStep(c, c.Request(keyname.Claim(args[0]), o.Request), o,
		l.digits.has(names.Lock{DB: c.As.DB, Key: o.Value}))
}

// readStep answers with the value, if it is there and need not be made again. If it can be a lock, it
// is read again withRecord.
func (l *waits) readStep(c Client, r script.Request, o syntax.Lock, withRecord bool) *Step {
	do := [][][]byte{wordsOf("GET", r.Value)}
	if r.Early > 0 {
		do = append(do, wordsOf("PTTL", r.Value))
	}
	if withRecord {
		do = append(do, wordsOf("GET", keyname.Record([]byte(r.Value))))
	}
	return &Step{Asks: Commands{List: do, Reads: true}, Finish: func(
		a script.Answer, err error,
	) (Reply, *Step) {
		if err != nil {
			return errorReply(err), nil
		}
		value, there, err := valueOf(script.ParseReply(a.Raw[0]))
		suspect := err == nil && there && mayBeLock(value)
		l.digits.note(names.Lock{DB: c.As.DB, Key: r.Value}, suspect)
		switch {
		case suspect && !withRecord:
			return Reply{}, l.readStep(c, r, o, true)
		case suspect:
			var record resp.Value
			if record, err = resp.ParseValue(a.Raw[len(a.Raw)-1]); err == nil {
				err = lockAt(value, record)
			}
		}
		soonGone := false
		if err == nil && r.Early > 0 {
			var lives resp.Value
			lives, err = script.ParseReply(a.Raw[1])
			soonGone = lives.Int >= 0 && script.FromMS(lives.Int) < r.Early
		}
		switch {
		case err != nil:
			return errorReply(err), nil
		case there && !soonGone:
			return l.hit(value), nil
		case !there && o.Waits:
			return l.waitStep(c, r, o.Wait)
		}
		var present *string
		if there {
			present = &value
		}
		return Reply{}, l.claimStep(c, r, o, present)
	}}
}

// hit makes the reply to a client that is given the value.
func (l *waits) hit(value string) Reply {
	l.seen.counters.OnceHits.Add(1)
	return valueReply(resp.Bulk(value))
}

// claimStep asks for the claim. present is the value, if there is one, that the client is given if
// another has the claim: it is refused nothing.
func (l *waits) claimStep(c Client, r script.Request, o syntax.Lock, present *string) *Step {
	rs := lockRequests{r}
	return l.tryStep(c, rs, false, func(a script.Attempt, err error) (Reply, *Step) {
		switch {
		case a.Made:
			return Reply{}, l.readStep(c, r, o, false)
		case err == nil && a.Token == 0 && present != nil:
			return l.hit(*present), nil
		}
		return l.tried(c, rs, a, err)
	})
}

// beginDone is DONE.
func (l *waits) beginDone(c Client, args [][]byte) *Step {
	p, stored, err := syntax.ParseDone(args[1:])
	if err != nil {
		return refusedStep(err)
	}
	id := names.Lock{DB: c.As.DB, Key: keyname.Claim(args[0])}
	c.Suspend(id, p)
	var r *unlockCall
	if stored == nil {
		r = l.releases.beginRelease(c.Holder, id, c.As, p, true)
	} else {
		r = &unlockCall{by: c.Holder, id: id, as: c.As, proof: p,
			handOver: queue.HandOver{Of: l.queues.Of(id), Kind: "none"}}
		r.Call = l.Scripts.Done(id, p, string(args[0]), *stored)
	}
	return l.releases.releaseStep(r, func(released bool, err error) Reply {
		l.renewals.Unlocked(c.Holder, id, p, r.token, released)
		switch {
		case err != nil:
			return errorReply(err)
		case !released:
			return valueReply(resp.Int(0))
		case stored != nil:
			l.seen.counters.OnceStored.Add(1)
		default:
			l.seen.counters.OnceGivenUp.Add(1)
		}
		return valueReply(resp.Int(1))
	})
}
