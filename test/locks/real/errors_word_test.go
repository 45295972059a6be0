package real_test

import (
	"fmt"
	"testing"

	"lockproxy/internal/test/proxytest"
)

// notInteger is the reply to a command with a word in place of a number.
func notInteger(word, want string) string {
	return fmt.Sprintf("-ERR value is not an integer or out of range: %q (%s)\r\n", word, want)
}

// misplaced is the reply to a command with a word that it doesn't know there.
func misplaced(word, want string) string {
	return fmt.Sprintf("-ERR syntax error near %q: want %s; see LOCK HELP\r\n", word, want)
}

// faulty is the reply to a command with a word that it knows, and cannot take there.
func faulty(word, fault string) string {
	return fmt.Sprintf("-ERR syntax error near %q: %s; see LOCK HELP\r\n", word, fault)
}

const (
	lockOptions    = "SHARED, LIMIT n, WAIT seconds, SESSION, MAX seconds or OWNER name"
	lockAllOptions = "WAIT seconds, SESSION or OWNER name"
	kinds          = "lockproxy|timestamp|other|all"
	scanOptions    = "MATCH pattern, COUNT n or KIND " + kinds
	topOptions     = "BY wait|hold|count, COUNT n or SHAPES"
	doneOptions    = "EX seconds or PX milliseconds"
)

// Each error names the argument that it is about, and what was expected.
func TestErrorsNameTheWord(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	waitOutOfRange := func(arg string) string {
		return fmt.Sprintf("-ERR WAIT is not a float or out of range: %q (seconds, "+
			"0 waits forever, at most 8589934592)\r\n", arg)
	}
	maxOutOfRange := func(arg string) string {
		return fmt.Sprintf("-ERR MAX is not a float or out of range: %q (seconds, "+
			"greater than 0, at most 8589934592)\r\n", arg)
	}
	const most = "9223372036854775807"
	expire := func(arg, want string) string {
		return fmt.Sprintf("-ERR invalid expire time in 'done' command: %q (%s)\r\n", arg, want)
	}
	for command, want := range map[string]string{
		"LOCK job 300 SESION":              misplaced("SESION", lockOptions),
		"LOCK job 300 EX 10":               misplaced("EX", lockOptions),
		"LOCK job 300 WAIT":                faulty("WAIT", "WAIT lacks its value, want WAIT seconds"),
		"LOCK job 300 OWNER":               faulty("OWNER", "OWNER lacks its value, want OWNER name"),
		"LOCK job 300 WAIT 1 WAIT 1":       faulty("WAIT", "WAIT is given twice"),
		"LOCK job 300 SESSION session":     faulty("session", "SESSION is given twice"),
		"LOCK job 300 SHARED LIMIT 2":      faulty("LIMIT", "SHARED and LIMIT exclude each other"),
		"LOCK job 300 LIMIT 0":             notInteger("0", "LIMIT, at least 1"),
		"LOCK job 300 WAIT x":              waitOutOfRange("x"),
		"LOCK job 300 WAIT -1":             waitOutOfRange("-1"),
		"LOCK job 300 WAIT -1e-400":        waitOutOfRange("-1e-400"),
		"LOCK job 300 WAIT 8589934593":     waitOutOfRange("8589934593"),
		"LOCK job 300 SESSION MAX":         faulty("MAX", "MAX lacks its value, want MAX seconds"),
		"LOCK job 300 SESSION MAX 5 max 6": faulty("max", "MAX is given twice"),
		"LOCK job 300 MAX 10":              misplaced("MAX", "SESSION MAX seconds"),
		"LOCK job 300 SESSION MAX 0":       maxOutOfRange("0"),
		"LOCK job 300 SESSION MAX -1":      maxOutOfRange("-1"),
		"LOCK job 300 SESSION MAX x":       maxOutOfRange("x"),
		"LOCKALL 300 x a b":                notInteger("x", "numkeys, 1 to 64"),
		"LOCKALL 300 1 a SHARED":           misplaced("SHARED", lockAllOptions),
		"LOCKALL 300 1 a LIMIT 2":          misplaced("LIMIT", lockAllOptions),
		"LOCKALL 300 1 a SESSION MAX 5":    misplaced("MAX", lockAllOptions),
		"LOCKALL 300 1 a WAIT":             faulty("WAIT", "WAIT lacks its value, want WAIT seconds"),
		"LOCKALL 300 1 a WAIT x":           waitOutOfRange("x"),
		"LOCKALL 300 1 a b":                misplaced("b", lockAllOptions),
		"UNLOCK job abc":                   notInteger("abc", "a token, or FORCE"),
		"UNLOCKALL x 1 a":                  notInteger("x", "a token"),
		"UNLOCKALL 1 x a":                  notInteger("x", "numkeys, 1 to 64"),
		"UNLOCKALL 1 1 a b":                misplaced("b", "no more than numkeys keys"),
		"RELOCK job x 300":                 notInteger("x", "a token"),
		"FENCE job x GET a":                notInteger("x", "a token"),
		"DONE job 1 v EX x":                notInteger("x", "EX"),
		"DONE job 1 v EX 0":                expire("0", "EX, 1 to 1000000000000000"),
		"DONE job 1 v EX 1000000000000001": expire("1000000000000001", "EX, 1 to 1000000000000000"),
		"DONE job 1 v PX " + most:          expire(most, "PX, 1 to 1000000000000000000"),
		"DONE job 1 v PX":                  faulty("PX", "PX lacks its value, want PX milliseconds"),
		"DONE job 1 v KEEPTTL":             misplaced("KEEPTTL", doneOptions),
		"DONE job 1 v EX 1000000000000000": ":0\r\n",
		"LOCKINFO job HOLDER":              misplaced("HOLDER", "HOLDERS, WAITERS or CHANGED token"),
		"LOCKSCAN 0 KIND foo":              misplaced("foo", "KIND "+kinds),
		"LOCKSCAN 0 KIND":                  faulty("KIND", "KIND lacks its value, want KIND "+kinds),
		"LOCKSCAN 0 LIKE foo":              misplaced("LIKE", scanOptions),
		"LOCKSCAN 0 COUNT x":               notInteger("x", "COUNT, at least 1"),
		"LOCKSCAN 0 COUNT 0":               misplaced("0", "COUNT, at least 1"),
		"LOCKTOP BY size":                  misplaced("size", "BY wait|hold|count"),
		"LOCKTOP SHAPES SHAPES":            faulty("SHAPES", "SHAPES is given twice"),
		"LOCKTOP COUNT 0":                  notInteger("0", "COUNT, at least 1"),
		"LOCK job 300 LIMIT 2 SHARED":      faulty("SHARED", "SHARED and LIMIT exclude each other"),
		"LOCK job 300 SHARED shared":       faulty("shared", "SHARED is given twice"),
		"LOCK job 300 LIMIT":               faulty("LIMIT", "LIMIT lacks its value, want LIMIT n"),
		"LOCKALL 300 1 a OWNER":            faulty("OWNER", "OWNER lacks its value, want OWNER name"),
		"ONCE job 300 EARLY":               faulty("EARLY", "EARLY lacks its value, want EARLY seconds"),
		"ONCE job 300 EARLY 1 EARLY 1":     faulty("EARLY", "EARLY is given twice"),
		"LOCKSCAN 0 COUNT 5 COUNT 6":       faulty("COUNT", "COUNT is given twice"),
		"LOCKTOP COUNT":                    faulty("COUNT", "COUNT lacks its value, want COUNT n"),
		"LOCKLOG job COUNT":                faulty("COUNT", "COUNT lacks its value, want COUNT n"),
		"LOCKLOG job MATCH 3":              misplaced("MATCH", "COUNT n"),
		"LOCKLOG COUNT x":                  notInteger("x", "COUNT, at least 1"),
		"LOCK job 300 a\x01b":              misplaced("a\x01b", lockOptions),
	} {
		c.Expect(command, want)
	}
	if got := c.DoWords("LOCK", "job", "300", "OWNER", ""); got != faulty("OWNER",
		"OWNER lacks its value, want OWNER name") {
		t.Errorf("%q", got)
	}
	if got := c.DoWords("LOCK", "job", "300", "a\r\n\xff"); got != misplaced("a\r\n\xff", lockOptions) {
		t.Errorf("%q", got)
	}
}
