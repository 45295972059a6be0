package lockcmd

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// lockRequest is one LOCK of a connection, as the lock record names it.
type lockRequest struct {
	key        string
	timeout    time.Duration
	connection string
	number     string // of the request, within the connection
	client     string // address
	name       string // of the connection (CLIENT SETNAME); "" for none
	session    bool
	owner      string
	shared     bool
	limit      int64         // of a shared lock; 0 is none
	longest    time.Duration // MAX, of a session lock; 0 is none

	value string        // of ONCE: the key of what the lock's holder makes; "" for others
	early time.Duration // EARLY, of ONCE; 0 is none
}

// who is the client in the lock record: its address, and its connection's name if it has one.
func (r lockRequest) who() string {
	if r.name == "" {
		return r.client
	}
	return r.client + whoMark + r.name
}

// ownerOrName is what people call the client by, if anything.
func (r lockRequest) ownerOrName() string { return cmp.Or(r.owner, r.name) }

// splitWho is the address and the name in a lock record's client.
func splitWho(who string) (client, name string) {
	client, name, _ = strings.Cut(who, whoMark)
	return client, name
}

const (
	whoMark     = "|" // no address has it
	maxConnName = 64  // bytes of a connection's name that a lock record keeps
)

// connName is a connection's name as a lock record can keep it: Redis allows no blanks in it.
func connName(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return name[:min(len(name), maxConnName)]
}

// limitText is A[12] of lock.lua.
func (r lockRequest) limitText() string {
	if !r.shared {
		return "-"
	}
	return strconv.FormatInt(r.limit, 10)
}

// earlyText is ARGV[5] of once.lua.
func (r lockRequest) earlyText() string {
	if r.early == 0 {
		return ""
	}
	return milliseconds(r.early)
}

// mode is LOCKINFO's name for the kind of lock.
func (r lockRequest) mode() string {
	if r.shared {
		return "shared"
	}
	return "exclusive"
}

// appendSharer appends the request as an entry of shared.lua's list.
func (r lockRequest) appendSharer(list []byte) []byte {
	for _, field := range []string{
		milliseconds(r.timeout), flag(r.session), r.connection, r.number, r.who(), r.limitText(),
		strconv.Itoa(len(r.owner)),
	} {
		list = append(append(list, field...), ' ')
	}
	return append(list, r.owner...)
}

// holderFields is the lock record from `session` on; see read.lua.
func (r lockRequest) holderFields() string {
	return flag(r.session) + " held " + r.connection + " " + r.number + " " + r.who() +
		" -\n" + r.owner
}

// sharerFields is a holder in a shared lock's record from `session` on; see read.lua.
func (r lockRequest) sharerFields() string {
	return flag(r.session) + " " + r.connection + " " + r.number + " " + r.who() + "\n" + r.owner
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// attempt is the result of one call of lock.lua.
type attempt struct {
	token     int64         // 0 if the lock is held
	foreign   bool          // held by, or taken over from, a foreign client
	takenOver bool          // a grace period runs
	made      bool          // ONCE: there is a value, and the claim was not taken
	renewed   bool          // its owner had the lock already, and may know the token
	before    bool          // this connection was given it before
	given     int           // how many waiters were given a shared lock, with the first
	exclusive bool          // the lock is exclusive, whatever was asked for now
	remaining time.Duration // of a held lock

	heldShared bool // others share it
	askedAt    time.Time
	waited     time.Duration // in the queue of waiters
}
