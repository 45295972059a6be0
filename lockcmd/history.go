package lockcmd

import (
	"context"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/monotonic"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// These hooks tell the journal what happens. They run within lock commands: they are short and
// never block.

// waitBegan notes a waiter that was not given the lock at once. waitEnded must follow.
func (o *observed) waitBegan(w *queue.Waiter) {
	id := w.ID()
	o.journal.WaitBegan(id, monotonic.Of(w.Joined), monotonic.Now())
	o.findHolder(w)
}

func (o *observed) waitEnded(w *queue.Waiter, won bool) {
	o.journal.WaitEnded(w.ID(), holderOf(w), won, monotonic.Of(w.Joined),
		monotonic.Now())
}

// holderOf is a waiter that gets the lock, for the journal.
func holderOf(w *queue.Waiter) journal.Holder {
	return journal.Holder{Owner: w.OwnerOrName(), Client: w.Client, Note: w.Note}
}

// findHolder asks the upstream, now and then, who has the lock that w waits for, unless this proxy
// gave it.
func (o *observed) findHolder(w *queue.Waiter) {
	id, as := w.ID(), w.As
	if !o.journal.WantsHolder(id, monotonic.Now()) {
		return
	}
	o.Timers.After(0, func(ctx context.Context) {
		on := o.Clients.On(ctx, as, id.Key, time.Now().Add(o.Clients.Patience()))
		v, err := o.Ask(on, script.InfoScript, id.Key)
		h, held := lockinfo.Read(v)
		if err != nil || !held {
			return
		}
		holder := journal.Holder{Token: h.Token, Owner: h.Whose(), Client: h.Client,
			Note: h.Note}
		if h.Kind != script.KindLockproxy {
			holder = journal.Holder{Client: foreignHolder}
		}
		o.journal.SetHolder(id, holder, monotonic.Now())
	})
}

// foreignHolder stands for the holder of a foreign lock.
const foreignHolder = "a foreign client"
