package lockcmd

import (
	"cmp"

	"lockproxy/internal/journal"
	"lockproxy/internal/loglimit"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/script"
)

// observeRelease notes a release that has been answered, before the next holder is. It returns the
// lock that has ended, and those of its other holders, if this proxy had given them.
func (o *observed) observeRelease(
	r *unlockCall, v resp.Value, answer []int64, err error,
) (ended *held.Lock, others []*held.Lock) {
	released, p := err == nil && answer[0] != 0, r.proof
	if p.Kind == "force" {
		o.auditForce(r, v, released, err)
	}
	if !released {
		return nil, nil
	}
	o.counters.HandedOver.Add(uint64(givenTo(answer)))
	asked := r.by != nil
	if p.Kind == "request" || p.Kind == "reserved" || p.Kind == "given" && asked {
		return nil, nil // no client was given the lock
	}
	kind := journal.Disconnected
	switch {
	case p.Kind == "revoke" || p.Kind == "force":
		o.counters.Forced.Add(1)
		kind = journal.Forced
	case asked:
		o.counters.Unlocked.Add(1)
		kind = journal.Released
	default:
		o.counters.Disconnect.Add(1)
	}
	ended, others = o.registry.Remove(r.id, p, r.token)
	if ended == nil {
		o.journalElsewhere(kind, r.id, r.token, whoHad(v))
		return nil, nil
	}
	o.observeEnd(kind, ended)
	for _, lock := range others {
		o.observeEnd(kind, lock)
	}
	return ended, others
}

// whoHad is the client in an answer of unlock.lua, if that names one.
func whoHad(v resp.Value) (who script.Who) {
	if len(v.Elems) > 5 {
		who = script.SplitWho(string(v.Elems[5].Text))
	}
	return who
}

// ForcedUnlock is a forced unlock, for the log.
type ForcedUnlock struct {
	DB     int
	Key    string
	Token  int64  // 0 for a foreign client's timestamp
	Holder string // address of the client that held the lock, if it is known
	Name   string // of that client's connection, if it has one
	Note   string // why it held the lock, if it has said so
	Client string // address of the client that forces it
	User   string // of the upstream; "" is the default user
	Via    string // redis, or admin
}

// audit logs a forced unlock that released a lock, found none, or was refused.
func (o *observed) audit(f ForcedUnlock, released bool, err error) {
	user := cmp.Or(f.User, "default")
	line := loglimit.Add([]any{"key", f.Key, "db", f.DB}, "token", f.Token, "holder", f.Holder,
		"holder_name", f.Name, "note", f.Note)
	line = append(line, "client", f.Client, "user", user, "via", f.Via)
	switch {
	case err != nil:
		o.Log.Info("a forced unlock was refused", append(line, "error", err)...)
	case !released:
		o.Log.Info("a forced unlock found no such lock", line...)
	default:
		o.Log.Info("a forced unlock released a lock", line...)
	}
}

// auditForce logs an UNLOCK … FORCE, with its client and the holder.
func (o *observed) auditForce(r *unlockCall, v resp.Value, released bool, err error) {
	f := ForcedUnlock{DB: r.id.DB, Key: r.id.Key, Client: r.by.Addr, User: r.as.User, Via: "redis"}
	if len(v.Elems) > 5 {
		f.Token = v.Elems[3].Int
	}
	who := whoHad(v)
	f.Holder, f.Name, f.Note = who.Client, who.Name, who.Note
	o.audit(f, released, err)
}
