package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ServerError is an error reply of the upstream to a script. The client is sent it as it is.
type ServerError string

func (e ServerError) Error() string { return string(e) }

// HasCode reports whether an error reply begins with one of these words.
func HasCode(said ServerError, codes ...string) bool {
	code, _, _ := strings.Cut(string(said), " ")
	return slices.Contains(codes, code)
}

// IsTransient reports whether the error says that the server is not a serving master now.
func (e ServerError) IsTransient() bool {
	return HasCode(e, "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN",
		"MOVED", "ASK")
}

// Late is the upstream's time, ms, if err says that the question has come too late: then nothing
// has been done. See `ends` of take.lua.
func Late(err error) (now int64, is bool) {
	said, _ := err.(ServerError)
	text, is := strings.CutPrefix(string(said), "LATE ")
	if is {
		now, err = strconv.ParseInt(text, 10, 64)
	}
	return now, is && err == nil
}

// RelayedError is an UPSTREAM error that came as a reply: one node of a cluster was lost, or
// another lockproxy is behind this one. UPSTREAM is cut off.
type RelayedError string

func (e RelayedError) Error() string { return string(e) }

// MayHaveRun reports whether the request may have been carried out, by package upstream's wording.
func (e RelayedError) MayHaveRun() bool { return !strings.Contains(string(e), "nothing was sent") }

// ErrorOf makes an error of an error reply.
func ErrorOf(text []byte) error {
	if said, ok := strings.CutPrefix(string(text), "UPSTREAM "); ok {
		return RelayedError(said)
	}
	return ServerError(text)
}

// NoReplicasError says that writes were not confirmed as wanted.
type NoReplicasError struct {
	Want    Confirmation
	Got     int    // how many replicas have confirmed it
	OnDisk  bool   // with Want.Fsync: the upstream has it on its disk
	Refused string // the upstream's error to WAIT or WAITAOF, or ""
	Outcome string // of the lock
}

func (e NoReplicasError) Error() string {
	return fmt.Sprintf("NOREPLICAS %s: %s", e.missing(), e.Outcome)
}

func (e NoReplicasError) missing() string {
	replicas := fmt.Sprintf("%d of %d replicas", e.Got, e.Want.Replicas)
	switch within := e.Want.Within; {
	case e.Refused != "" && e.Want.Fsync:
		return "the upstream does not tell whether it is on disk (" + e.Refused +
			"), which takes Redis 7.2 or later with appendonly yes"
	case e.Refused != "":
		return "the upstream does not tell how many replicas acknowledged it (" + e.Refused + ")"
	case !e.Want.Fsync:
		return fmt.Sprintf("%s acknowledged it within %v", replicas, within)
	case e.OnDisk:
		return fmt.Sprintf("%s had it on disk within %v", replicas, within)
	case e.Want.Replicas > 0:
		return fmt.Sprintf("the upstream did not have it on disk within %v, and %s did",
			within, replicas)
	default:
		return fmt.Sprintf("the upstream did not have it on disk within %v", within)
	}
}
