package lockcmd

import (
	"math"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/resp"
)

// UsageError is a request that is wrong in itself; its text is Redis's own wording, code included.
type UsageError string

func (e UsageError) Error() string { return string(e) }

const (
	errSyntax   UsageError = "ERR syntax error"
	errFloat    UsageError = "ERR timeout is not a float or out of range"
	errNegative UsageError = "ERR timeout is negative"
	errInteger  UsageError = "ERR value is not an integer or out of range"
)

// parseSeconds reads a time in seconds, decimals allowed, as BLPOP does: rounded up to the millisecond. limit is the largest
// that is allowed. Zero is returned as zero.
func parseSeconds(arg []byte, limit time.Duration) (time.Duration, error) {
	if !isDecimal(arg) {
		return 0, errFloat
	}
	seconds, err := strconv.ParseFloat(string(arg), 64)
	switch {
	case err != nil:
		return 0, errFloat
	case seconds < 0:
		return 0, errNegative
	case seconds > limit.Seconds():
		return 0, errFloat
	}
	// By way of whole microseconds, since 30.001 * 1000 is more than 30001 in binary.
	ms := math.Ceil(math.Round(seconds*1e6) / 1e3)
	if ms == 0 && seconds > 0 {
		ms = 1
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// isDecimal keeps out what ParseFloat takes beyond decimal numbers: infinities, NaN, hexadecimal and underscores.
func isDecimal(arg []byte) bool {
	for i, c := range arg {
		switch {
		case c >= '0' && c <= '9', c == '.':
		case (c == 'e' || c == 'E') && i > 0:
		case (c == '-' || c == '+') && (i == 0 || arg[i-1] == 'e' || arg[i-1] == 'E'):
		default:
			return false
		}
	}
	return len(arg) > 0 && len(arg) <= 64
}

// parseTimeout reads LOCK's timeout: more than 0 and at most limit.
func parseTimeout(arg []byte, limit time.Duration) (time.Duration, error) {
	timeout, err := parseSeconds(arg, limit)
	if err == nil && timeout == 0 {
		err = errFloat
	}
	return timeout, err
}

// proof is what an UNLOCK brings to show that the lock is its sender's.
type proof struct {
	kind  string // as unlock.lua names it
	value string
}

// parseProof reads the arguments of UNLOCK behind the key: a token, FORCE, or nothing for the lock that this connection took.
func parseProof(args [][]byte, connection string) (proof, error) {
	switch {
	case len(args) == 0:
		return proof{"connection", connection}, nil
	case strings.EqualFold(string(args[0]), "FORCE"):
		return proof{"force", ""}, nil
	}
	token, ok := resp.ParseInt(args[0])
	if !ok {
		return proof{}, errInteger
	}
	return proof{"token", strconv.FormatInt(token, 10)}, nil
}
