package syntax

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/script"
)

// parseSeconds reads a time in seconds, decimals allowed, as BLPOP does: rounded up to the
// millisecond, and at most limit. Zero stays zero.
func parseSeconds(
	name string, arg []byte, limit time.Duration, want string,
) (time.Duration, error) {
	if !isDecimal(arg) {
		return 0, secondsError(name, arg, want+atMost(limit))
	}
	seconds, err := strconv.ParseFloat(string(arg), 64)
	switch {
	case err != nil, seconds > limit.Seconds():
		return 0, secondsError(name, arg, want+atMost(limit))
	case seconds < 0:
		return 0, negative(name, arg, want+atMost(limit))
	}
	mantissa, _, _ := strings.Cut(strings.ToLower(string(arg)), "e")
	tiny := seconds == 0 && strings.ContainsAny(mantissa, "123456789") // 64 bits round it to 0
	if tiny && mantissa[0] == '-' {
		return 0, negative(name, arg, want+atMost(limit))
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

// ParseTimeout reads LOCK's timeout: more than 0 and at most limit.
func ParseTimeout(arg []byte, limit time.Duration) (time.Duration, error) {
	return parsePositive("timeout", arg, limit)
}

// parsePositive is parseSeconds for a time that must be more than 0.
func parsePositive(name string, arg []byte, limit time.Duration) (time.Duration, error) {
	const want = "greater than 0, "
	d, err := parseSeconds(name, arg, limit, want)
	if err == nil && d == 0 {
		err = secondsError(name, arg, want+atMost(limit))
	}
	return d, err
}

// parseWait reads WAIT's time; 0 is forever.
func parseWait(arg []byte) (time.Duration, error) {
	return parseSeconds("WAIT", arg, longestWait, "0 waits forever, ")
}

// ParseProof reads the arguments of UNLOCK after the key: a token, FORCE, or nothing for the lock
// that this connection took.
func ParseProof(args [][]byte, connection string) (script.Proof, error) {
	switch {
	case len(args) == 0:
		return script.Proof{Kind: "connection", Value: connection}, nil
	case strings.EqualFold(string(args[0]), "FORCE"):
		return script.Proof{Kind: "force", Value: ""}, nil
	}
	return ParseToken(args[0], "a token, or FORCE")
}

func ParseToken(arg []byte, want string) (script.Proof, error) {
	token, ok := resp.ParseInt(arg)
	if !ok {
		return script.Proof{}, NotInteger(arg, want)
	}
	return script.Proof{Kind: "token", Value: strconv.FormatInt(token, 10)}, nil
}

// Lock are the arguments of LOCK after the key.
type Lock struct {
	script.Request // Holder.request sets the other fields
	Waits          bool
	Wait           time.Duration // 0 is forever
}

// longestWait is the largest WAIT, as for BLPOP: what fits into 64 bits of nanoseconds.
const longestWait = 1 << 33 * time.Second

// parseLimit reads LIMIT's number of holders.
func parseLimit(arg []byte) (int64, error) {
	n, ok := resp.ParseInt(arg)
	if !ok || n < 1 {
		return 0, NotInteger(arg, "LIMIT, at least 1")
	}
	return n, nil
}

// ParseLock reads "timeout [SHARED | LIMIT n] [WAIT seconds] [SESSION [MAX seconds]] [OWNER name]";
// each option once, in any order.
func ParseLock(args [][]byte, maxTimeout time.Duration) (o Lock, err error) {
	return ParseOptions(args, maxTimeout, wantLock)
}

// ParseOptions reads the arguments of LOCK, LOCKALL or ONCE: want lists its options.
func ParseOptions(args [][]byte, maxTimeout time.Duration, want string) (o Lock, err error) {
	if o.Timeout, err = ParseTimeout(args[0], maxTimeout); err != nil {
		return o, err
	}
	owned, limited := false, []byte(nil) // limited is the word MAX
	for args = args[1:]; len(args) > 0; args = args[1:] {
		option, valued := strings.ToUpper(string(args[0])), len(args) > 1
		switch {
		case option == "SESSION" && !o.Session:
			o.Session = true
			continue
		case option == "SHARED" && want == wantLock && !o.Shared:
			o.Shared = true
			continue
		case option == "LIMIT" && want == wantLock && !o.Shared && valued:
			o.Shared = true
			o.Limit, err = parseLimit(args[1])
		case option == "WAIT" && !o.Waits && valued:
			o.Waits = true
			o.Wait, err = parseWait(args[1])
		case option == "EARLY" && want == WantOnce && o.Early == 0 && valued:
			o.Early, err = parsePositive("EARLY", args[1], longestWait)
		case option == "MAX" && want != wantLockAll && limited == nil && valued:
			limited = args[0]
			o.Longest, err = parsePositive("MAX", args[1], longestWait)
		case option == "OWNER" && !owned && valued && len(args[1]) > 0:
			owned = true
			o.Owner = string(args[1])
		default:
			return o, Unexpected(args[0], want)
		}
		if err != nil {
			return o, err
		}
		args = args[1:]
	}
	if limited != nil && !o.Session {
		return o, Unexpected(limited, "SESSION MAX seconds")
	}
	return o, nil
}

// maxKeys is how many locks LOCKALL and UNLOCKALL take at most.
const maxKeys = 64

// ParseKeys reads "numkeys key [key …]", all different, and returns the arguments after them.
func ParseKeys(args [][]byte) (keys, rest [][]byte, err error) {
	n, ok := resp.ParseInt(args[0])
	switch {
	case !ok:
		return nil, nil, NotInteger(args[0], wantNumKeys)
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

// ParseLockAll reads "timeout numkeys key [key …] [WAIT seconds] [SESSION] [OWNER name]".
func ParseLockAll(
	args [][]byte, maxTimeout time.Duration,
) (o Lock, keys [][]byte, err error) {
	if _, err := ParseTimeout(args[0], maxTimeout); err != nil {
		return o, nil, err
	}
	keys, rest, err := ParseKeys(args[1:])
	if err != nil {
		return o, nil, err
	}
	o, err = ParseOptions(append([][]byte{args[0]}, rest...), maxTimeout, wantLockAll)
	return o, keys, err
}

// Scan are the arguments of LOCKSCAN.
type Scan struct {
	Cursor  string
	Pattern string
	Count   string
	Kind    string // lockproxy, timestamp, other or all
}

// ParseScan reads "cursor [MATCH pattern] [COUNT n] [KIND kind]".
func ParseScan(args [][]byte) (o Scan, err error) {
	o = Scan{Cursor: string(args[0]), Pattern: "*", Count: "10", Kind: script.KindLockproxy}
	if _, err := strconv.ParseUint(o.Cursor, 10, 64); err != nil {
		return o, errCursor
	}
	for args = args[1:]; len(args) > 0; args = args[2:] {
		option := strings.ToUpper(string(args[0]))
		switch {
		case len(args) < 2:
			return o, Unexpected(args[0], wantScan)
		case option == "MATCH":
			o.Pattern = string(args[1])
		case option == "COUNT":
			n, ok := resp.ParseInt(args[1])
			if !ok {
				return o, NotInteger(args[1], wantPositive)
			}
			if n < 1 { // as SCAN says it
				return o, Unexpected(args[1], wantPositive)
			}
			o.Count = string(args[1])
		case option == "KIND":
			o.Kind = strings.ToLower(string(args[1]))
			switch o.Kind {
			case script.KindLockproxy, script.KindTimestamp, script.KindOther, script.KindAll:
			default:
				return o, Unexpected(args[1], wantScan)
			}
		default:
			return o, Unexpected(args[0], wantScan)
		}
	}
	return o, nil
}
