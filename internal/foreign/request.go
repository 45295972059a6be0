package foreign

import (
	"bytes"
	"hash/maphash"
	"strconv"
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
	Loads         // SCRIPT LOAD
	Replaces      // GETSET, of the oldest recipes
)

// Action is what a request means for a lock.
type Action uint8

const (
	Nothing   Action = iota
	Take             // if it is free
	TakeNull         // likewise; the reply is null if it has
	TakeZero         // likewise; the reply is 0 if it has
	Candidate        // SETNX: a lock once it has a TTL
	Extend           // to last TTL from now
	Release
	// Touch may be any of these, by a script of unknown shape, or by GETSET.
	Touch
)

// Takes reports whether the request can take a lock.
func (a Action) Takes() bool { return a >= Take && a <= Candidate }

// Request is a request as it concerns locks.
type Request struct {
	Action
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
func Read(role Role, args [][]byte, keys []int, shapes *Shapes, now time.Time) (r Request) {
	if role == Loads && len(args) == 3 {
		shapes.OfText(args[2])
		return r
	}
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
		r.readScript(args, shapes, now)
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
		r.Action = TakeNull
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

// of is the shape of the script of EVAL or EVALSHA.
func (s *Shapes) of(args [][]byte) (shape Shape, known bool) {
	if len(args[0]) == len("eval") {
		return s.OfText(args[1]), true
	}
	return s.OfHash(args[1])
}

// Takes reports whether the script of EVAL or EVALSHA can take a lock. A text is remembered.
func (s *Shapes) Takes(args [][]byte) bool {
	if len(args) < 2 {
		return false
	}
	shape, _ := s.of(args)
	return shape.Does == Takes || shape.Does == TakesZero || shape.Does == TakesHash
}

// readScript reads EVAL and EVALSHA.
func (r *Request) readScript(args [][]byte, shapes *Shapes, now time.Time) {
	shape, known := shapes.of(args)
	rest := args[min(len(args), 3+len(r.Keys)):]
	r.readArgs(rest, shape.Seconds, now)
	switch shape.Does {
	case Takes:
		r.Action = Take
	case TakesZero:
		r.Action = TakeZero
	case TakesHash:
		r.Action, r.Keys = TakeNull, r.Keys[:1] // the others are channels and the like
	case Extends:
		r.Action = Extend
	case Frees:
		r.Action = Release
	default:
		r.Action = Touch
		switch {
		case known || len(rest) == 0:
			r.Proof, r.TTL = 0, 0
		case len(rest) == 1: // compare-and-delete has the value alone
			r.TTL = 0
			fallthrough
		default:
			r.Proof = proofOf(rest[0])
		}
	}
}

// readArgs finds the holder's value and the TTL among a script's arguments: the value is the first
// that is no number, the TTL the last that is one, a time from now or since 1970.
func (r *Request) readArgs(args [][]byte, seconds bool, now time.Time) {
	for _, arg := range args {
		n, ok := resp.ParseInt(arg)
		since1970 := n >= 1e12 || seconds && n >= 1e9 // otherwise more than 30 years from now
		ttl := after(arg, !seconds || n >= 1e12, since1970, now)
		switch {
		case ttl > 0:
			r.TTL = ttl
		case r.Proof == 0 && len(arg) > 0 && !ok && !isDecimal(arg):
			r.Proof = proofOf(arg)
		}
	}
}

// isDecimal reports whether a text is a number with a point, such as a time.
func isDecimal(text []byte) bool {
	_, err := strconv.ParseFloat(string(text[:min(len(text), 32)]), 64)
	return err == nil && bytes.IndexByte(text, '.') > 0
}

// Outcome is whether a request has done its work.
type Outcome uint8

const (
	Failed Outcome = iota // an error
	Queued                // in a transaction: nobody knows yet
	No                    // refused: held by another, or not held
	Yes
)

// Outcome reads the head of the reply to a request with this action.
func (a Action) Outcome(h resp.Head) Outcome {
	null := h.Type == '_' || h.Type == '$' && string(h.Line) == "-1" ||
		h.Type == '*' && string(h.Line) == "-1"
	switch {
	case bytes.HasPrefix(h.Line, wrongType) || bytes.HasPrefix(h.Line, inScript):
		return No // Redisson's answer where LOCK has the lock, which is no hash
	case h.IsError():
		return Failed
	case h.Type == '+' && string(h.Line) == "QUEUED":
		return Queued
	case a == TakeNull:
		return outcome(null)
	case a == TakeZero:
		return outcome(h.Type == ':' && string(h.Line) == "0")
	case null || h.Type == ':' && (string(h.Line) == "0" || bytes.HasPrefix(h.Line, minus)) ||
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
