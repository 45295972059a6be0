package lockcmd

import "time"

// Identity is whom a connection's commands run as, and where.
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

// lockRequest is one LOCK of a connection, as metadata keys name it.
type lockRequest struct {
	key        string
	timeout    time.Duration
	connection string
	number     string
	client     string
	session    bool
	owner      string
}

// holderFields is what a metadata key says of the holder, from `session` on; see read.lua.
func (r lockRequest) holderFields() string {
	return flag(r.session) + " held " + r.connection + " " + r.number + " " + r.client + " -\n" + r.owner
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// attempt is what one run of lock.lua found.
type attempt struct {
	token     int64 // 0 if the lock is held
	foreign   bool  // held by, or taken over from, a foreign client
	takenOver bool
	renewed   bool          // its owner had it already, and may know the token
	before    bool          // this connection had been given it before
	remaining time.Duration // of a held lock
	askedAt   time.Time
}
