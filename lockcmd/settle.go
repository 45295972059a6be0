package lockcmd

import (
	"strconv"
	"time"
)

// looks are the times after a takeover at which its timestamp is looked at. A plain client writes within the time between its
// own two commands: mostly a millisecond, seldom much more.
var looks = []time.Duration{
	3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 80 * time.Millisecond, 200 * time.Millisecond,
	500 * time.Millisecond, time.Second, 1500 * time.Millisecond, settling - 50*time.Millisecond,
}

// NextLook returns how long after the takeover look number n (from 0) is due; ok is false when all have been.
func NextLook(n int) (after time.Duration, ok bool) {
	if n >= len(looks) {
		return 0, false
	}
	return looks[n], true
}

// Settle looks once whether the timestamp of a lock that was taken over is still what LOCK wrote, and puts it right if not.
// over says that there is nothing to look after any more.
func Settle(caller Caller, t Takeover) (corrected, over bool, err error) {
	v, err := eval(caller, settleScript, []byte(t.Key), strconv.FormatInt(t.Token, 10))
	if err != nil {
		return false, false, err
	}
	return v.Int == 1, v.Int == -1, nil
}
