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
	return parseAtLeast(name, arg, time.Millisecond, limit, "greater than 0, ")
}

// parseAtLeast is parseSeconds for a time that must not be shorter than another.
func parseAtLeast(
	name string, arg []byte, least, limit time.Duration, want string,
) (time.Duration, error) {
	d, err := parseSeconds(name, arg, limit, want)
	if err == nil && d < least {
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

// Relock are the arguments of RELOCK after the key.
type Relock struct {
	Proof   script.Proof
	Timeout time.Duration
	Mode    string // SHARED or EXCLUSIVE, what the lock is to be; "" leaves it as it is
	Waits   bool
	Wait    time.Duration // 0 is forever
}

// ParseRelock reads "token timeout [SHARED | EXCLUSIVE [WAIT seconds]]".
func ParseRelock(args [][]byte, maxTimeout time.Duration) (o Relock, err error) {
	if o.Proof, err = ParseToken(args[0], WantToken); err != nil {
		return o, err
	}
	if o.Timeout, err = ParseTimeout(args[1], maxTimeout); err != nil {
		return o, err
	}
	for r := (optionReader{known: relockOptions, args: args[2:]}); r.more() && err == nil; {
		arg, word, value := r.args[0], "", []byte(nil)
		switch word, value, err = r.next(); {
		case err != nil:
		case word != "WAIT":
			o.Mode = word
		case o.Mode != "EXCLUSIVE":
			err = syntaxError(arg, "WAIT is for EXCLUSIVE")
		default:
			o.Waits = true
			o.Wait, err = parseWait(value)
		}
	}
	return o, err
}

// Lock are the arguments of LOCK after the key.
type Lock struct {
	script.Request // Holder.request sets the other fields
	Waits          bool
	Wait           time.Duration // 0 is forever
	Place          time.Duration // 0 is none
}

// longestWait is the largest WAIT, as for BLPOP: what fits into 64 bits of nanoseconds.
const longestWait = 1 << 33 * time.Second

// maxNote bounds NOTE's text, bytes: it is in the lock record.
const maxNote = 256

// parseLimit reads LIMIT's number of holders.
func parseLimit(arg []byte) (int64, error) {
	n, ok := resp.ParseInt(arg)
	if !ok || n < 1 {
		return 0, NotInteger(arg, "LIMIT, at least 1")
	}
	return n, nil
}

// ParseLock reads the arguments of LOCK after the key: each option once, in any order.
func ParseLock(args [][]byte, maxTimeout time.Duration) (o Lock, err error) {
	return parseLock(args, maxTimeout, lockOptions)
}

// ParseOnce reads the arguments of ONCE after the key, in the same way.
func ParseOnce(args [][]byte, maxTimeout time.Duration) (o Lock, err error) {
	return parseLock(args, maxTimeout, onceOptions)
}

// parseLock reads the arguments of LOCK, LOCKALL or ONCE, which has these options.
func parseLock(args [][]byte, maxTimeout time.Duration, known optionSet) (o Lock, err error) {
	if o.Timeout, err = ParseTimeout(args[0], maxTimeout); err != nil {
		return o, err
	}
	var limited []byte // the word MAX
	for r := (optionReader{known: known, args: args[1:]}); r.more(); {
		arg := r.args[0]
		word, value, err := r.next()
		if err != nil {
			return o, err
		}
		switch word {
		case "SESSION":
			o.Session = true
		case "SHARED":
			o.Shared = true
		case "LIMIT":
			o.Shared = true
			o.Limit, err = parseLimit(value)
		case "WAIT":
			o.Waits = true
			o.Wait, err = parseWait(value)
		case "PLACE":
			// A longer one keeps others from the lock for longer if its client never asks again.
			o.Place, err = parseAtLeast("PLACE", value, 100*time.Millisecond, time.Minute, "at least 0.1, ")
		case "EARLY":
			o.Early, err = parsePositive("EARLY", value, longestWait)
		case "MAX":
			limited = arg
			o.Longest, err = parsePositive("MAX", value, longestWait)
		case "OWNER":
			if o.Owner = string(value); o.Owner == "" {
				err = r.lacksValue(arg)
			}
		case "NOTE":
			if o.Note = string(value); o.Note == "" {
				err = r.lacksValue(arg)
			} else if len(value) > maxNote {
				err = syntaxError(arg, fmt.Sprintf("NOTE has %d bytes, want at most %d",
					len(value), maxNote))
			}
		}
		if err != nil {
			return o, err
		}
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

// ParseLockAll reads the arguments of LOCKALL.
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
	o, err = parseLock(append([][]byte{args[0]}, rest...), maxTimeout, lockAllOptions)
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
	for r := (optionReader{known: scanOptions, args: args[1:]}); r.more(); {
		word, value, err := r.next()
		if err != nil {
			return o, err
		}
		switch word {
		case "MATCH":
			o.Pattern = string(value)
		case "COUNT":
			n, ok := resp.ParseInt(value)
			if !ok {
				return o, NotInteger(value, wantPositive)
			}
			if n < 1 { // as SCAN says it
				return o, Unexpected(value, wantPositive)
			}
			o.Count = string(value)
		case "KIND":
			o.Kind = strings.ToLower(string(value))
			switch o.Kind {
			case script.KindLockproxy, script.KindTimestamp, script.KindOther, script.KindAll:
			default:
				return o, Unexpected(value, scanOptions[2].String())
			}
		}
	}
	return o, nil
}
