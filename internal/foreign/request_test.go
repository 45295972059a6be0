package foreign

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/resp"
)

func args(line string) (args [][]byte) {
	for _, word := range strings.Fields(line) {
		args = append(args, []byte(strings.ReplaceAll(word, "_", " ")))
	}
	return args
}

// The scripts are node-redlock's, which is one call, Redisson's and Symfony's.
const (
	take     = `return_redis.call("set",_KEYS[1],_ARGV[1],_"NX",_"PX",_ARGV[2])`
	takeHash = "862f31bf38e9b63ce28d6e9e5143551bb34ef981"
	redisson = "149c5a8bf18676fd99e9e6e24923bd64d9b62f94"
	symfony  = "6fdee501a3714553b74c0d67687b921b90b05d18"
)

func TestRead(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	one := []int{1}
	for _, c := range []struct {
		role Role
		line string
		keys []int
		want Action
		ttl  time.Duration
	}{
		{Sets, "SET k v", one, Nothing, 0},
		{Sets, "SET k v EX 10", one, Nothing, 0},
		{Sets, "SET k v XX EX 10", one, Nothing, 0},
		{Sets, "SET k v NX", one, Candidate, 0},
		{Sets, "SET k v NX PX 1500", one, Take, 1500 * time.Millisecond},
		{Sets, "set k v ex 10 nx", one, Take, 10 * time.Second},
		{Sets, "SET k v NX PXAT 1700000002000", one, Take, 2 * time.Second},
		{Sets, "SET k v EXAT 1700000003 NX", one, Take, 3 * time.Second},
		{Sets, "SET k v NX PX 9223372036854775807", one, Take, 0},
		{Sets, "SET k v NX GET PX 10", one, Take, 10 * time.Millisecond},
		{SetsNX, "SETNX k v", one, Candidate, 0},
		{SetsNX, "SETNX k 1700000005", one, Take, 5 * time.Second},
		{SetsNX, "SETNX k 1700000005000", one, Take, 5 * time.Second},
		{SetsNX, "SETNX k 1600000005000", one, Candidate, 0},
		{Expires, "EXPIRE k 5", one, Extend, 5 * time.Second},
		{Expires, "pexpireat k 1700000000005", one, Extend, 5 * time.Millisecond},
		{Expires, "EXPIRE k", one, Extend, 0},
		{Deletes, "DEL k l", []int{1, 2}, Release, 0},
		{Deletes, "DEL", nil, Nothing, 0},
		{Replaces, "GETSET k v", one, Touch, 0},
		{Runs, "EVAL return_1 1 k v", []int{3}, Touch, 0},
		{Runs, "EVAL return_1 1 k", []int{3}, Touch, 0},
		{Runs, "EVALSHA 0123456789012345678901234567890123456789 1 k v 300", []int{3}, Touch,
			300 * time.Millisecond},
		{Runs, "EVALSHA 0123 1 k v 300", []int{3}, Touch, 300 * time.Millisecond},
		{Runs, "EVAL " + take + " 1 k v 300", []int{3}, Take, 300 * time.Millisecond},
		{Runs, "EVAL " + take + " 1 k v 1700000000300", []int{3}, Take, 300 * time.Millisecond},
		{Runs, "EVAL " + take + strings.Repeat("_", maxScript) + " 1 k v 300", []int{3}, Touch,
			300 * time.Millisecond},
		{Runs, "EVALSHA " + takeHash + " 1 k v 300", []int{3}, Take, 300 * time.Millisecond},
		{Runs, "evalsha " + strings.ToUpper(takeHash) + " 1 k v 300", []int{3}, Take,
			300 * time.Millisecond},
		{Runs, "EVALSHA " + redisson + " 2 k channel 300 me", []int{3, 4}, Take,
			300 * time.Millisecond},
		{Runs, "EVALSHA fed16109024d968d9496e4140fe1355bac05ebff 1 k me 300", []int{3}, Extend,
			300 * time.Second},
		{Runs, "EVALSHA 6866459238a13a701d42f4971f12d9f3a50e2442 1 k 0 300 me", []int{3}, Release, 0},
		{Runs, "EVALSHA 90da91872223f85eb1376a17e3c4df21ace8c54b 1 k me 300", []int{3}, Release, 0},
	} {
		r := Read(c.role, args(c.line), c.keys, now)
		if r.Action != c.want || r.TTL != c.ttl {
			t.Errorf("%s: action %d for %v, want %d for %v", c.line, r.Action, r.TTL, c.want, c.ttl)
		}
		if c.role == Runs && r.Action.Takes() != TakesLock(args(c.line)) {
			t.Errorf("%s: takes a lock or not", c.line)
		}
	}
}

func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		done done
		kind byte
		line string
		want Outcome
	}{
		{positive, '+', "OK", Yes}, {positive, '$', "-1", No}, {positive, '_', "", No},
		{positive, ':', "0", No}, {positive, ':', "1", Yes}, {positive, ':', "2", Yes},
		{positive, ':', "-1", No}, {positive, '-', "ERR no", Failed},
		{positive, '+', "QUEUED", Queued}, {positive, '#', "f", No}, {positive, '#', "t", Yes},
		{positive, '$', "2", Yes}, {positive, ':', "", Yes},
		{zero, ':', "0", Yes}, {zero, ':', "2", No}, {zero, '$', "-1", No},
		{null, '$', "-1", Yes}, {null, ':', "3000", No}, {null, '_', "", Yes},
		{null, '-', "WRONGTYPE Operation against a key", No},
		{null, '-', "ERR Error running script (call to f_", No},
	} {
		r := Request{done: c.done}
		if got := r.Outcome(resp.Head{Type: c.kind, Line: []byte(c.line)}); got != c.want {
			t.Errorf("done by %d, %c%s: %d, want %d", c.done, c.kind, c.line, got, c.want)
		}
	}
}

// The holder's value identifies a release, wherever a script has it among its arguments. A script
// that answers null when it has taken a lock has other keys that are none.
func TestScripts(t *testing.T) {
	for line, want := range map[string]Request{
		"EVAL return_1 1 k me":                            {Action: Touch},
		"EVAL return_1 1 k me 300":                        {Action: Touch},
		"EVALSHA " + takeHash + " 1 k me 300":             {Action: Take},
		"EVALSHA " + redisson + " 2 k channel 300 me":     {Action: Take, done: null},
		"EVALSHA " + symfony + " 1 k 1700000000.5 me 300": {Action: Take},
	} {
		all := args(line)
		keys := []int{3, 4}[:all[2][0]-'0']
		r := Read(Runs, all, keys, time.Now())
		if r.Action != want.Action || r.done != want.done || r.Proof != proofOf([]byte("me")) ||
			len(r.Keys) != 1 {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

// The list has only scripts that lockproxy can follow.
func TestKnown(t *testing.T) {
	for sum, s := range known {
		takes := s.Action == Take && s.value > 0 && s.ttl > 0
		if !takes && (s.Action != Extend || s.ttl == 0) && s.Action != Release {
			t.Errorf("%x: %+v", sum, s)
		}
	}
}
