package lockcmd

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/resp"
)

const (
	errSyntax   UsageError = "ERR syntax error"
	errNegative UsageError = "ERR timeout is negative"
	errInteger  UsageError = "ERR value is not an integer or out of range"
	errCursor   UsageError = "ERR invalid cursor"
)

// errSeconds is the error for an argument that is no time, or is not allowed. want says what is.
func errSeconds(arg []byte, want string) UsageError {
	const shown = 64 // bytes
	return UsageError(fmt.Sprintf("ERR timeout is not a float or out of range: %.*q (seconds, %s)",
		shown, arg, want))
}

// atMost names a limit in an error.
func atMost(limit time.Duration) string {
	return "at most " + strconv.FormatFloat(limit.Seconds(), 'f', -1, 64)
}

// parseSeconds reads a time in seconds, decimals allowed, as BLPOP does: rounded up to the
// millisecond, and at most limit. Zero stays zero.
func parseSeconds(arg []byte, limit time.Duration) (time.Duration, error) {
	if !isDecimal(arg) {
		return 0, errSeconds(arg, atMost(limit))
	}
	seconds, err := strconv.ParseFloat(string(arg), 64)
	switch {
	case err != nil, seconds > limit.Seconds():
		return 0, errSeconds(arg, atMost(limit))
	case seconds < 0:
		return 0, errNegative
	}
	mantissa, _, _ := strings.Cut(strings.ToLower(string(arg)), "e")
	tiny := seconds == 0 && strings.ContainsAny(mantissa, "123456789") // 64 bits round it to 0
	if tiny && mantissa[0] == '-' {
		return 0, errNegative
	}
	// Rounded to microseconds first: 30.001 * 1000 is more than 30001 in binary.
	ms := math.Ceil(math.Round(seconds*1e6) / 1e3)
	if ms == 0 && (seconds > 0 || tiny) {
		ms = 1
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// isDecimal refuses the other numbers of ParseFloat: infinities, NaN, hexadecimal, underscores.
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
	if err != nil && err != errNegative || err == nil && timeout == 0 {
		err = errSeconds(arg, "greater than 0, "+atMost(limit))
	}
	return timeout, err
}

// proof shows that a lock is its releaser's.
type proof struct {
	kind  string // A[1] of unlock.lua
	value string
}

// token is the proof's token, 0 if it has none.
func (p proof) token() int64 {
	if p.kind != "token" && p.kind != "revoke" {
		return 0
	}
	n, _ := strconv.ParseInt(p.value, 10, 64)
	return n
}

// parseProof reads the arguments of UNLOCK after the key: a token, FORCE, or nothing for the lock
// that this connection took.
func parseProof(args [][]byte, connection string) (proof, error) {
	switch {
	case len(args) == 0:
		return proof{"connection", connection}, nil
	case strings.EqualFold(string(args[0]), "FORCE"):
		return proof{"force", ""}, nil
	}
	return parseToken(args[0])
}

func parseToken(arg []byte) (proof, error) {
	token, ok := resp.ParseInt(arg)
	if !ok {
		return proof{}, errInteger
	}
	return proof{"token", strconv.FormatInt(token, 10)}, nil
}

// lockOptions are the arguments of LOCK after the key.
type lockOptions struct {
	lockRequest // Holder.request sets the other fields
	waits       bool
	wait        time.Duration // 0 is without end
}

// longestWait is the largest WAIT, as for BLPOP: what fits into 64 bits of nanoseconds.
const longestWait = 1 << 33 * time.Second

// parseLimit reads LIMIT's number of holders.
func parseLimit(arg []byte) (int64, error) {
	n, ok := resp.ParseInt(arg)
	if !ok || n < 1 {
		return 0, UsageError(fmt.Sprintf("%s: %.64q (LIMIT, at least 1)", errInteger, arg))
	}
	return n, nil
}

// parseLock reads "timeout [SHARED | LIMIT n] [WAIT seconds] [SESSION] [OWNER name]"; each option
// once, in any order.
func parseLock(args [][]byte, maxTimeout time.Duration) (o lockOptions, err error) {
	if o.timeout, err = parseTimeout(args[0], maxTimeout); err != nil {
		return o, err
	}
	owned := false
	for args = args[1:]; len(args) > 0; args = args[1:] {
		switch option := strings.ToUpper(string(args[0])); {
		case option == "SESSION" && !o.session:
			o.session = true
		case option == "SHARED" && !o.shared:
			o.shared = true
		case option == "LIMIT" && !o.shared && len(args) > 1:
			o.shared = true
			if o.limit, err = parseLimit(args[1]); err != nil {
				return o, err
			}
			args = args[1:]
		case option == "WAIT" && !o.waits && len(args) > 1:
			o.waits = true
			if o.wait, err = parseSeconds(args[1], longestWait); err != nil {
				return o, err
			}
			args = args[1:]
		case option == "OWNER" && !owned && len(args) > 1 && len(args[1]) > 0:
			owned = true
			o.owner = string(args[1])
			args = args[1:]
		default:
			return o, errSyntax
		}
	}
	return o, nil
}

// maxKeys is how many locks LOCKALL and UNLOCKALL take at most.
const maxKeys = 64

// parseKeys reads "numkeys key [key …]", all different, and returns the arguments after them.
func parseKeys(args [][]byte) (keys, rest [][]byte, err error) {
	n, ok := resp.ParseInt(args[0])
	switch {
	case !ok:
		return nil, nil, errInteger
	case n < 1:
		return nil, nil, UsageError("ERR numkeys should be greater than 0")
	case n > maxKeys:
		return nil, nil, UsageError(fmt.Sprintf("ERR numkeys should be at most %d", maxKeys))
	case n > int64(len(args)-1):
		return nil, nil, UsageError("ERR Number of keys can't be greater than number of args")
	}
	keys, rest = args[1:n+1], args[n+1:]
	seen := map[string]bool{}
	for _, key := range keys {
		if seen[string(key)] {
			return nil, nil, UsageError(fmt.Sprintf("ERR the keys should be different: %.64q", key))
		}
		seen[string(key)] = true
	}
	return keys, rest, nil
}

// parseLockAll reads "timeout numkeys key [key …] [WAIT seconds] [SESSION] [OWNER name]".
func parseLockAll(
	args [][]byte, maxTimeout time.Duration,
) (o lockOptions, keys [][]byte, err error) {
	if _, err := parseTimeout(args[0], maxTimeout); err != nil {
		return o, nil, err
	}
	keys, rest, err := parseKeys(args[1:])
	if err != nil {
		return o, nil, err
	}
	o, err = parseLock(append([][]byte{args[0]}, rest...), maxTimeout)
	if err == nil && o.shared {
		err = errSyntax
	}
	return o, keys, err
}

// scanOptions are the arguments of LOCKSCAN.
type scanOptions struct {
	cursor  string
	pattern string
	count   string
	kind    string // lockproxy, timestamp, other or all
}

// parseScan reads "cursor [MATCH pattern] [COUNT n] [KIND kind]".
func parseScan(args [][]byte) (o scanOptions, err error) {
	o = scanOptions{cursor: string(args[0]), pattern: "*", count: "10", kind: kindLockproxy}
	if _, err := strconv.ParseUint(o.cursor, 10, 64); err != nil {
		return o, errCursor
	}
	for args = args[1:]; len(args) > 0; args = args[2:] {
		if len(args) < 2 {
			return o, errSyntax
		}
		switch strings.ToUpper(string(args[0])) {
		case "MATCH":
			o.pattern = string(args[1])
		case "COUNT":
			n, ok := resp.ParseInt(args[1])
			if !ok {
				return o, errInteger
			}
			if n < 1 {
				return o, errSyntax
			}
			o.count = string(args[1])
		case "KIND":
			o.kind = strings.ToLower(string(args[1]))
			switch o.kind {
			case kindLockproxy, kindTimestamp, kindOther, kindAll:
			default:
				return o, errSyntax
			}
		default:
			return o, errSyntax
		}
	}
	return o, nil
}
