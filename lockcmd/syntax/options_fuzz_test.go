package syntax

import (
	"errors"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/lockcmd/script"
)

// decimal is what Redis, and so lockproxy, takes for a number of seconds.
var decimal = regexp.MustCompile(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$`)

// exact reads arg without loss. tiny and huge stand for exponents that are too large for a Rat.
func exact(arg string) (x *big.Rat, tiny, huge bool) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(arg), "e")
	if n, err := strconv.Atoi(exponent); exponent != "" && (err != nil || n < -600 || n > 600) {
		zero := strings.Trim(mantissa, "+-0.") == ""
		below := strings.HasPrefix(exponent, "-")
		if sign := strings.HasPrefix(mantissa, "-"); !zero && !sign {
			return big.NewRat(1, 1), below, !below
		} else if !zero {
			return big.NewRat(-1, 1), below, !below
		}
		arg = "0"
	}
	x, ok := new(big.Rat).SetString(arg)
	if !ok {
		panic("not a decimal: " + arg)
	}
	return x, false, false
}

// ratOf is d in seconds.
func ratOf(d time.Duration) *big.Rat { return big.NewRat(int64(d), int64(time.Second)) }

// smallest is about the smallest float64 that has all its digits.
var smallest, _ = new(big.Rat).SetString("1e-300")

func isOutOfRange(err error) bool {
	const text = `ERR timeout is not a float or out of range: "`
	return err != nil && strings.HasPrefix(err.Error(), text)
}

// checkSeconds compares what parseSeconds made of arg with exact arithmetic.
func checkSeconds(t *testing.T, arg string, limit, got time.Duration, err error) {
	t.Helper()
	var usage UsageError
	if err != nil && (!errors.As(err, &usage) || got != 0) {
		t.Fatalf("%q: got %v with error %v", arg, got, err)
	}
	if len(arg) > 64 || !decimal.MatchString(arg) {
		if !isOutOfRange(err) {
			t.Fatalf("%q is no number: got %v, %v", arg, got, err)
		}
		return
	}
	x, tiny, huge := exact(arg)
	tiny = tiny || new(big.Rat).Abs(x).Cmp(smallest) < 0
	switch {
	case x.Sign() < 0 && tiny: // Redis itself takes it for 0
	case x.Sign() < 0:
		if err == nil {
			t.Fatalf("%q is negative: got %v", arg, got)
		}
	case x.Sign() == 0:
		if got != 0 || err != nil {
			t.Fatalf("%q is zero: got %v, %v", arg, got, err)
		}
	case tiny:
		if err == nil && got != time.Millisecond {
			t.Fatalf("%q is more than zero: got %v", arg, got)
		}
	case huge || x.Cmp(new(big.Rat).Mul(ratOf(limit), big.NewRat(1e15+1, 1e15))) > 0:
		if !isOutOfRange(err) {
			t.Fatalf("%q is more than %v: got %v, %v", arg, limit, got, err)
		}
	case err != nil:
		// At most so little above the limit that a float64 can't tell.
		if x.Cmp(ratOf(limit)) <= 0 {
			t.Fatalf("%q is not more than %v: %v", arg, limit, err)
		}
	default:
		// Rounded up to the millisecond, after rounding to the microsecond.
		inexact := new(big.Rat).Mul(x, big.NewRat(1, 1e15)) // of a float64
		least := inexact.Add(inexact, big.NewRat(501, 1e9))
		low := new(big.Rat).Add(x, new(big.Rat).Neg(least))
		high := new(big.Rat).Add(x, inexact.Add(inexact, big.NewRat(1, 1e3)))
		if got <= 0 || got > limit || got%time.Millisecond != 0 ||
			ratOf(got).Cmp(low) < 0 || ratOf(got).Cmp(high) > 0 {
			t.Fatalf("%q, at most %v: got %v", arg, limit, got)
		}
	}
}

func FuzzOptions(f *testing.F) {
	for _, arg := range []string{
		"0", "1", "10", "0.5", ".5", "5.", "+1", "-1", "-0", "0.0004", "0.0005", "0.001",
		"30.001", "0.1234567", "86400", "86400.0000001", "86401", "1e1", "1E-1", "1e+2", "1e5",
		"9e-1", "8589934592", "8589934592.001", "8589934591.9999999", "1e309", "-1e309", "1e-300",
		"1e999999999", "0e999999999", "-1e-999999999", "1e", "e1", "1e+", ".", "", "-", "+",
		"inf", "-inf", "nan", "infinity", "0x10", "0x1p4", "1_000", " 1", "1 ", "1s", "１",
		"1\x00", "--1", "1.2.3",
		"0000000000000000000000000000000000000000000000000000000000000001",
		"00000000000000000000000000000000000000000000000000000000000000001", "FORCE", "force",
		"FORCED", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "01",
	} {
		f.Add([]byte(arg), uint32(86_400_000))
	}
	f.Add([]byte("0.001"), uint32(0))
	f.Add([]byte("1e-400"), uint32(1000))
	f.Fuzz(func(t *testing.T, arg []byte, limitMS uint32) {
		limit := time.Duration(limitMS)*time.Millisecond + time.Millisecond
		got, err := parseSeconds("timeout", arg, longestWait, "")
		checkSeconds(t, string(arg), longestWait, got, err)
		got, err = parseSeconds("timeout", arg, limit, "")
		checkSeconds(t, string(arg), limit, got, err)

		timeout, timeoutErr := ParseTimeout(arg, limit)
		if err == nil && got == 0 {
			if !isOutOfRange(timeoutErr) {
				t.Fatalf("timeout %q: got %v, %v", arg, timeout, timeoutErr)
			}
		} else if timeout != got || (timeoutErr == nil) != (err == nil) {
			t.Fatalf("timeout %q: got %v, %v; as seconds %v, %v",
				arg, timeout, timeoutErr, got, err)
		}

		checkProof(t, arg)
	})
}

// checkProof compares what ParseProof makes of arg with exact arithmetic.
func checkProof(t *testing.T, arg []byte) {
	t.Helper()
	got, err := ParseProof([][]byte{arg}, "connection 1")
	number, isNumber := new(big.Int).SetString(string(arg), 10)
	switch {
	case strings.EqualFold(string(arg), "force"):
		if err != nil || got != (script.Proof{Kind: "force", Value: ""}) {
			t.Fatalf("%q: got %+v, %v", arg, got, err)
		}
	case isNumber && number.IsInt64() && number.String() == string(arg): // the only form
		if err != nil || got != (script.Proof{Kind: "token", Value: string(arg)}) {
			t.Fatalf("%q: got %+v, %v", arg, got, err)
		}
	default:
		if err != NotInteger(arg, "a token, or FORCE") || got != (script.Proof{}) {
			t.Fatalf("%q: got %+v, %v", arg, got, err)
		}
	}
}

func TestParseProofWithoutToken(t *testing.T) {
	if got, err := ParseProof(nil, "c-1"); err != nil || got != (script.Proof{Kind: "connection", Value: "c-1"}) {
		t.Errorf("got %+v, %v", got, err)
	}
}
