package lockcmd

import (
	"strconv"
	"time"
)

// Identity is the user and the database of a connection's commands.
type Identity struct {
	User     string // "" is the default user
	Password string // never logged
	LoggedIn bool
	DB       int
}

// LockID names a lock within the upstream.
type LockID struct {
	DB  int
	Key string
}

// lockRequest is one LOCK of a connection, as the lock record names it.
type lockRequest struct {
	key        string
	timeout    time.Duration
	connection string
	number     string // of the request, within the connection
	client     string // address
	session    bool
	owner      string
	shared     bool
	limit      int64         // of a shared lock; 0 is none
	longest    time.Duration // MAX, of a session lock; 0 is none
}

// limitText is A[12] of lock.lua.
func (r lockRequest) limitText() string {
	if !r.shared {
		return "-"
	}
	return strconv.FormatInt(r.limit, 10)
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
		milliseconds(r.timeout), flag(r.session), r.connection, r.number, r.client, r.limitText(),
		strconv.Itoa(len(r.owner)),
	} {
		list = append(append(list, field...), ' ')
	}
	return append(list, r.owner...)
}

// holderFields is the lock record from `session` on; see read.lua.
func (r lockRequest) holderFields() string {
	return flag(r.session) + " held " + r.connection + " " + r.number + " " + r.client +
		" -\n" + r.owner
}

// sharerFields is a holder in a shared lock's record from `session` on; see read.lua.
func (r lockRequest) sharerFields() string {
	return flag(r.session) + " " + r.connection + " " + r.number + " " + r.client + "\n" + r.owner
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
	renewed   bool          // its owner had the lock already, and may know the token
	before    bool          // this connection was given it before
	given     int           // how many waiters were given a shared lock, with the first
	exclusive bool          // the lock is exclusive, whatever was asked for now
	remaining time.Duration // of a held lock

	heldShared bool // others share it
	askedAt    time.Time
	waited     time.Duration // in the queue of waiters
}
