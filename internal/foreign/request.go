package foreign

import (
	"bytes"
	"hash/maphash"
	"time"

	"lockproxy/internal/resp"
)

// Role is what a command can do to a lock of a client that does not know LOCK. The table of
// commands has it.
type Role uint8

const (
	None     Role = iota
	Sets          // SET, which takes a lock with NX
	SetsNX        // SETNX
	Expires       // EXPIRE and the like
	Deletes       // DEL and the like
	Runs          // EVAL, EVALSHA
	Replaces      // GETSET, of the oldest recipes
)

// Action is what a request means for a lock.
type Action uint8

const (
	Nothing   Action = iota
	Take             // if it is free
	Candidate        // SETNX: a lock once it has a TTL
	Extend           // to last TTL from now
	Release
	// Touch may be any of these, by an unknown script, or by GETSET.
	Touch
)

// Takes reports whether the request can take a lock.
func (a Action) Takes() bool { return a == Take || a == Candidate }

// done is the reply that says that a request has done its work.
type done uint8

const (
	positive done = iota // OK, true, or a number greater than 0
	null
	zero
)

// Request is a request as it concerns locks.
type Request struct {
	Action
	done  done
	Keys  [][]byte      // at most maxKeys
	TTL   time.Duration // of Take and Extend; 0 is unknown
	Proof uint64        // hash of the value that is written or compared; 0 for none
}

// maxKeys bounds the locks that one request is taken to concern.
const maxKeys = 64

var proofSeed = maphash.MakeSeed()

func proofOf(value []byte) uint64 { return max(maphash.Bytes(proofSeed, value), 1) }

// MaySetNX reports whether it is SET key value … NX. Most SETs are not, and it is cheap to tell.
func MaySetNX(args [][]byte) bool { return option(args, "nx") > 0 }

// SetsLock reports whether it is SET key value … NX with PX or EX, and without GET: the answer is
// OK or nil.
func SetsLock(args [][]byte) bool {
	return option(args, "nx") > 0 && option(args, "get") == 0 &&
		(option(args, "px") > 0 || option(args, "ex") > 0)
}

// Read says what a request means. keys are the positions of its keys among args, which begin with
// the command's name.
func Read(role Role, args [][]byte, keys []int, now time.Time) (r Request) {
	for _, at := range keys[:min(len(keys), maxKeys)] {
		r.Keys = append(r.Keys, args[at])
	}
	if len(r.Keys) == 0 {
		return r
	}
	switch role {
	case Sets:
		r.readSet(args, now)
	case SetsNX:
		if len(args) == 3 {
			r.readTimestamp(args[2], now)
		}
	case Replaces:
		r.Action = Touch
	case Expires:
		r.Action = Extend
		r.TTL = expiry(string(bytes.ToLower(args[0])), args, now)
	case Deletes:
		r.Action = Release
	case Runs:
		r.readScript(scriptOf(args), args[3+len(keys):], now)
	}
	return r
}

// readSet reads SET key value NX ….
func (r *Request) readSet(args [][]byte, now time.Time) {
	if option(args, "nx") == 0 {
		return
	}
	r.readTimestamp(args[2], now)
	for _, unit := range []string{"px", "ex", "pxat", "exat"} {
		if i := option(args, unit); i > 0 && i+1 < len(args) {
			r.Action = Take
			r.TTL = after(args[i+1], unit == "px" || unit == "pxat", unit[len(unit)-1] == 't', now)
		}
	}
	if r.Action == Take && option(args, "get") > 0 {
		r.done = null
	}
}

// readTimestamp reads the value that SETNX writes: a lock's, if it is the time when it expires.
func (r *Request) readTimestamp(value []byte, now time.Time) {
	r.Action, r.Proof = Candidate, proofOf(value)
	if len(value) != len("1700000000") && len(value) != len("1700000000000") {
		return
	}
	if r.TTL = after(value, len(value) > len("1700000000"), true, now); r.TTL > 0 {
		r.Action = Take
	} else {
		r.TTL = 0
	}
}

// option is the position of a word among SET's options, 0 if it is not there.
func option(args [][]byte, word string) int {
	for i := 3; i < len(args); i++ {
		if len(args[i]) == len(word) && bytes.EqualFold(args[i], []byte(word)) {
			return i
		}
	}
	return 0
}

// expiry is the time that EXPIRE and its kind give.
func expiry(name string, args [][]byte, now time.Time) time.Duration {
	if len(args) < 3 {
		return 0
	}
	return after(args[2], name[0] == 'p', name[len(name)-1] == 't', now)
}

// after reads a time in seconds or ms, from now or since 1970. 0 is none.
func after(text []byte, ms, at bool, now time.Time) time.Duration {
	n, ok := resp.ParseInt(text)
	unit := time.Second
	if ms {
		unit = time.Millisecond
	}
	if !ok || n <= 0 || n > int64(maxTTL/unit) && !at {
		return 0
	}
	if !at {
		return time.Duration(n) * unit
	}
	if n > (now.Unix()+int64(maxTTL/time.Second))*int64(time.Second/unit) {
		return 0
	}
	return time.UnixMilli(n * int64(unit/time.Millisecond)).Sub(now)
}

// maxTTL is the longest TTL that a lock is taken to have.
const maxTTL = 100 * 365 * 24 * time.Hour

// readScript reads the arguments of a script behind its keys.
func (r *Request) readScript(s script, args [][]byte, now time.Time) {
	r.Action, r.done = s.Action, s.done
	if s.done == null {
		r.Keys = r.Keys[:1] // the others are channels and the like
	}
	if s.value > 0 && s.value <= len(args) {
		r.Proof = proofOf(args[s.value-1])
	}
	if s.ttl > 0 && s.ttl <= len(args) {
		since1970, _ := resp.ParseInt(args[s.ttl-1])
		r.TTL = after(args[s.ttl-1], !s.seconds, since1970 >= 1e12, now)
	}
}

// Outcome is whether a request has done its work.
type Outcome uint8

const (
	Failed Outcome = iota // an error
	Queued                // in a transaction: nobody knows yet
	No                    // refused: held by another, or not held
	Yes
)

// Outcome reads the head of the reply to the request.
func (r *Request) Outcome(h resp.Head) Outcome {
	isNull := h.Type == '_' || h.Type == '$' && string(h.Line) == "-1" ||
		h.Type == '*' && string(h.Line) == "-1"
	switch {
	case bytes.HasPrefix(h.Line, wrongType) || bytes.HasPrefix(h.Line, inScript):
		return No // Redisson's answer where LOCK has the lock, which is no hash
	case h.IsError():
		return Failed
	case h.Type == '+' && string(h.Line) == "QUEUED":
		return Queued
	case r.done == null:
		return outcome(isNull)
	case r.done == zero:
		return outcome(h.Type == ':' && string(h.Line) == "0")
	case isNull || h.Type == ':' && (string(h.Line) == "0" || bytes.HasPrefix(h.Line, minus)) ||
		h.Type == '#' && string(h.Line) == "f":
		return No
	}
	return Yes
}

var (
	minus     = []byte{'-'}
	wrongType = []byte("WRONGTYPE ")
	inScript  = []byte("ERR Error running script") // before Redis 7
)

func outcome(yes bool) Outcome {
	if yes {
		return Yes
	}
	return No
}
