package lockcmd

import (
	"lockproxy/internal/names"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// unlockCall is one call of unlock.lua.
type unlockCall struct {
	script.Call
	by       *held.Holder // whose command it is; nil for the proxy's own
	id       names.Lock
	as       names.Identity
	proof    script.Proof
	handOver queue.HandOver
	token    int64 // that was released; 0 if it is unknown, or for an exclusive lock
}

// lossByRelease names a release here that has ended a lock.
func lossByRelease(r *unlockCall) held.Loss {
	switch {
	case r.by == nil:
		return held.LostBy("released by an operator")
	case r.proof.Kind == "force":
		return held.LostBy("forced by " + r.by.Addr)
	}
	return held.LostBy("released with its token by " + r.by.Addr)
}

// givenTo is how many waiters a release has given the lock.
func givenTo(answer []int64) int {
	switch {
	case answer[1] == 0:
		return 0
	case len(answer) > 4:
		return int(answer[4])
	}
	return 1
}
