package lockcmd

import (
	"fmt"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/foreign"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// traffic learns about locks from the relayed commands of foreign clients.
type traffic struct {
	*common
	queues *queue.Queues
	locks  *held.Registry
	known  *foreign.Locks // held by foreign clients
}

// foreignCounts are those of the locks of foreign clients, when the journal has been told of all
// that have expired.
func (f *traffic) foreignCounts() foreign.Counts { return f.known.Counts(time.Now()) }

// WatchesForeign reports whether it matters if a foreign client releases or extends a lock.
func (f *traffic) WatchesForeign() bool { return f.queues.Waiting() || f.known.Any() }

// ObserveForeign notes a foreign client's request; role is its command's. replied must be called
// with the head of the reply. It is nil if no lock of the request matters here. ObserveForeign
// returns at once, and any goroutine can call it.
func (f *traffic) ObserveForeign(
	db int, by foreign.Client, role foreign.Role, args [][]byte, keys *commands.Keys,
) (replied func(resp.Head)) {
	var room [4]int
	r := foreign.Read(role, args, keys.Positions(args, room[:0]), time.Now())
	var ids []names.Lock
	for _, key := range r.Keys {
		if r.Action.Takes() || f.queues.Keys.May(key) {
			ids = append(ids, names.Lock{DB: db, Key: string(key)})
		}
	}
	if ids == nil {
		return nil
	}
	r.Keys = nil // they are valid only now
	return func(h resp.Head) {
		outcome, now := r.Outcome(h), time.Now()
		if outcome == foreign.Failed {
			return
		}
		for _, id := range ids {
			released := f.known.Saw(id, by, r, outcome, now)
			taken := r.Action.Takes() && outcome == foreign.Yes
			if f.queues.Waiting() || released || r.Action == foreign.Touch {
				f.queues.Of(id).ForeignAnswered(r.Action, taken, released, now)
			}
		}
	}
}

// ForeignLocks returns up to limit locks of foreign clients that this proxy has seen being taken,
// or asked for without success. The upstream may know better.
func (f *traffic) ForeignLocks(limit int) []foreign.Lock {
	return f.known.List(limit, time.Now())
}

// Trying returns the foreign clients that this proxy has lately seen refused a lock.
func (f *traffic) Trying(id names.Lock) []foreign.Try {
	lock, _ := f.known.Get(id, time.Now())
	return lock.Trying
}

// addHolder adds the holder to what info.lua knows about a foreign client's lock, if this proxy has
// seen the lock taken: the client's name as the owner, its address, and since when. It returns what
// it has seen, without a Holder if another has the lock by now.
func (f *traffic) addHolder(h *lockinfo.Info) (seen foreign.Lock) {
	now := time.Now()
	seen, _ = f.known.Get(h.Lock, now)
	if h.Kind == script.KindLockproxy || seen.Holder.Addr == "" ||
		(seen.Until.Sub(now)-h.Remaining).Abs() > foreignSlack {
		seen.Holder = foreign.Client{}
		return seen
	}
	h.Owner, h.Client, h.Age = seen.Holder.Name, seen.Holder.Addr, now.Sub(seen.Since)
	h.Acquired = h.Now - h.Age.Milliseconds()
	return seen
}

// notForced is err, the answer to an UNLOCK … FORCE. If that is about another library's lock, it
// says whose it is and what frees it.
func (f *traffic) notForced(id names.Lock, err error) error {
	if err != script.ErrForeignLock {
		return err
	}
	whose := "another library's lock"
	if seen, _ := f.known.Get(id, time.Now()); seen.Holder.Addr != "" {
		if seen.Holder.Library != "" {
			whose = "a lock of " + seen.Holder.Library
		}
		whose += ", which this proxy has seen " + seen.Holder.Addr + " take"
	}
	return script.ServerError(fmt.Sprintf("WRONGTYPE Key %.64q holds %s: its holder frees it, or DEL; "+
		"UNLOCK frees only what LOCK or a timestamp holds", id.Key, whose))
}

// foreignSlack is how much the end of a foreign lock can differ from what this proxy has seen.
const foreignSlack = 1100 * time.Millisecond
