package lockinfo

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/names"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/script"
)

// Read reads what info.lua returns of a holder. held is false if nobody has the lock, or its time
// has expired.
func Read(v resp.Value) (h Info, held bool) {
	if len(v.Elems) < Fields {
		return h, false
	}
	who, remaining := script.SplitWho(string(v.Elems[4].Text)), v.Elems[7].Int
	h = Info{
		State: string(v.Elems[0].Text), Kind: string(v.Elems[1].Text), Token: v.Elems[2].Int,
		Owner: string(v.Elems[3].Text), Client: who.Client, Name: who.Name, Note: who.Note,
		Age: UnknownAge, Remaining: script.FromMS(remaining), Session: v.Elems[8].Int == 1,
		Mode: string(v.Elems[9].Text), Holders: int(v.Elems[10].Int),
		Acquired: v.Elems[5].Int, Expires: v.Elems[6].Int, Now: v.Elems[6].Int - remaining,
	}
	if !v.Elems[5].IsNull() {
		h.Age = script.FromMS(max(h.Now-h.Acquired, 0))
	}
	return h, h.State == "held"
}

// Info is a lock that is held.
type Info struct {
	names.Lock
	Kind      string // lockproxy, timestamp or other: see LOCKINFO
	Token     int64  // 0 unless LOCK holds it
	Owner     string
	Client    string        // address
	Name      string        // of the client's connection, if it has one
	Note      string        // why, if the client has said so
	Age       time.Duration // since it was acquired, or UnknownAge
	Remaining time.Duration // until it expires
	Session   bool
	Mode      string // "exclusive" or "shared"
	Holders   int    // of a shared lock. The other fields are those of the highest token
	Waiters   int    // at this proxy, with foreign clients that try
	// Elsewhere is how many other proxies have waiters, as far as the record tells.
	Elsewhere int
	// OldestWait is how long the first of them has waited.
	OldestWait time.Duration
	State      string // "held" or "expired", of info.lua
	// Times of info.lua are ms by the upstream's clock. Acquired is 0 if it is not known.
	Acquired, Expires, Now int64
	// Library is that of the foreign client that holds the lock, if it is known. Refused is how
	// often others were refused since.
	Library string
	Refused int
}

// Whose is the holder's name for people, if it has one: its owner's name, or its connection's.
func (h *Info) Whose() string { return cmp.Or(h.Owner, h.Name) }

// UnknownAge stands for the age of a foreign lock that this proxy has not seen being taken.
const UnknownAge = time.Duration(-1)

// OfForeign is what this proxy has seen of a lock of foreign clients.
func OfForeign(lock foreign.Lock) Info {
	h := Info{Lock: lock.Lock, Kind: script.KindOther, Age: UnknownAge}
	if lock.Holder.Addr != "" {
		now := time.Now()
		h.Owner, h.Client = lock.Holder.Name, lock.Holder.Addr
		h.Age, h.Remaining = now.Sub(lock.Since), lock.Until.Sub(now)
	}
	h.AddSeen(lock)
	return h
}

// AddSeen adds what was seen of foreign clients at the lock. Those that keep trying count as
// waiters.
func (h *Info) AddSeen(lock foreign.Lock) {
	if lock.Holder.Addr != "" {
		h.Library, h.Refused = lock.Holder.Library, lock.Refused
	}
	for _, t := range lock.Trying {
		h.Waiters++
		h.OldestWait = max(h.OldestWait, time.Since(t.Since))
	}
}

// Fields is how many values info.lua returns of a holder. Without "holders" the time and the
// record's `waiting` follow.
const Fields = 11

// ReadProxies reads the proxies with waiters, in order and except one, from elements of info.lua's
// reply that begin with the time and the record's `waiting`.
func ReadProxies(since []resp.Value, except string) (list []Proxy) {
	for entry := range strings.SplitSeq(string(since[1].Text), ",") {
		fields := strings.Split(entry, ":") // as read.lua has them
		if len(fields) != 4 || strings.HasSuffix(fields[0], "^") || fields[0] == except {
			continue // no proxy, but a holder that waits to be the only one
		}
		how := script.How(fields[2])
		seen, _ := strconv.ParseInt(fields[1], 10, 64)
		if since[0].Int-seen >= how.Lasts().Milliseconds() {
			continue
		}
		joined, _ := strconv.ParseInt(fields[3], 10, 64)
		list = append(list, Proxy{fields[0], how, joined})
	}
	return list
}

// Proxy is a proxy that has waiters for a lock, as the lock record lists it.
type Proxy struct {
	Name  string
	How   script.How
	Since int64
}
