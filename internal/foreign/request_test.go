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
		{Sets, "SET k v NX GET PX 10", one, TakeNull, 10 * time.Millisecond},
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
		{Runs, "EVALSHA 0123456789012345678901234567890123456789 1 k v 300", []int{3}, Touch,
			300 * time.Millisecond},
		{Runs, "EVAL return_redis.call('set',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) 1 k v 300",
			[]int{3}, Take, 300 * time.Millisecond},
		{Runs, "EVAL return_redis.call('set',KEYS[1],ARGV[1],'NX','PXAT',ARGV[2]) 1 k v " +
			"1700000000300", []int{3}, Take, 300 * time.Millisecond},
		{Runs, "EVAL return_redis.call('set',KEYS[1],ARGV[1],'NX','EXAT',ARGV[2]) 1 k v 1700000003",
			[]int{3}, Take, 3 * time.Second},
		{Runs,
			"EVAL redis.call('setnx',KEYS[1],ARGV[1])redis.call('expire',KEYS[1],9)return_0 1 k " +
				"1700000000 9", []int{3}, TakeZero, 9 * time.Second},
	} {
		r := Read(c.role, args(c.line), c.keys, NewShapes(), now)
		if r.Action != c.want || r.TTL != c.ttl {
			t.Errorf("%s: action %d for %v, want %d for %v", c.line, r.Action, r.TTL, c.want, c.ttl)
		}
	}
}

func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		a    Action
		kind byte
		line string
		want Outcome
	}{
		{Take, '+', "OK", Yes}, {Take, '$', "-1", No}, {Take, '_', "", No}, {Take, ':', "0", No},
		{TakeZero, ':', "0", Yes}, {TakeZero, ':', "2", No}, {TakeZero, '$', "-1", No},
		{Take, ':', "1", Yes}, {Take, '-', "ERR no", Failed}, {Take, '+', "QUEUED", Queued},
		{Take, '#', "f", No}, {Take, '#', "t", Yes}, {Take, '$', "2", Yes},
		{TakeNull, '$', "-1", Yes}, {TakeNull, ':', "3000", No}, {TakeNull, '_', "", Yes},
		{Release, ':', "2", Yes}, {Release, ':', "-1", No}, {Extend, ':', "1", Yes},
		{Take, ':', "", Yes}, {TakeNull, '-', "WRONGTYPE Operation against a key", No},
		{TakeNull, '-', "ERR Error running script (call to f_", No},
	} {
		if got := c.a.Outcome(resp.Head{Type: c.kind, Line: []byte(c.line)}); got != c.want {
			t.Errorf("action %d, %c%s: %d, want %d", c.a, c.kind, c.line, got, c.want)
		}
	}
}

// The holder's value is told apart from numbers: it identifies a release.
func TestProofOfScript(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	want := proofOf([]byte("me"))
	for _, line := range []string{"EVAL return_1 1 k me", "EVAL return_1 1 k 300 me",
		"EVAL return_1 1 k 1700000000.5 me 300", "EVAL return_1 1 k -1 me"} {
		a := args(line)
		r := Request{Keys: a[3:4]}
		r.readArgs(a[4:], false, now)
		if r.Proof != want {
			t.Errorf("%s: another value", line)
		}
	}
}
