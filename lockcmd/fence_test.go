package lockcmd

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/script"
)

// beginTestFence begins a FENCE of any command.
func beginTestFence(cluster bool, words ...string) *Step {
	l := New(Config{Cluster: cluster, CanFence: func([][]byte) bool { return true }}, "proxy", nil,
		hclog.NewNullLogger())
	return l.beginFence(Client{}, wordsOf(words...))
}

// What FENCE watches, and that it does so before it checks the token: the lock's key, and for a
// shared lock also its record and a key that expires with the token. If it watched others, a holder
// that loses the lock between the two round trips would still write.
func TestWatches(t *testing.T) {
	step := beginTestFence(false, "job", "7", "SET", "k", "v")
	sends := func(want ...string) {
		t.Helper()
		list := step.Commands().List
		for i, text := range want {
			if i >= len(list) || !bytes.HasPrefix(bytes.Join(list[i], []byte(" ")), []byte(text)) {
				t.Fatalf("%q, want %q in place %d", list, text, i)
			}
		}
	}
	answer := func(raw ...string) {
		var a script.Answer
		for _, r := range raw {
			a.Raw = append(a.Raw, []byte(r+"\r\n"))
		}
		_, step = step.Finish(a, nil)
	}
	record, expires := keyname.Record([]byte("job")), keyname.Fence([]byte("job"), 7)
	sends("WATCH job", "EVALSHA ", "MULTI")
	if n := len(step.Commands().List[0]); n != 2 || string(step.Commands().List[0][1]) != "job" {
		t.Errorf("%q is watched", step.Commands().List[0])
	}
	answer("+OK", ":2", "+OK") // it is shared
	sends("DISCARD")
	answer("+OK")
	sends("EVALSHA ", "WATCH job "+record+" "+expires, "EVALSHA ", "MULTI")
}

// One change of a shared lock's holders does not make FENCE give up, however slow its machine is.
func TestSlowMachineIsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := beginTestFence(false, "job", "7", "PING")
		answer := func(raw ...string) (reply Reply) {
			var a script.Answer
			for _, r := range raw {
				a.Raw = append(a.Raw, []byte(r+"\r\n"))
			}
			time.Sleep(time.Minute)
			reply, step = step.Finish(a, nil)
			return reply
		}
		answer("+OK", ":2", "+OK") // it is shared
		answer("+OK")
		for i := range sharedFenceLeast {
			if step == nil {
				t.Fatalf("it gave up after %d tries", i)
			}
			answer(":2", "+OK", ":2", "+OK")
			if got := string(bytes.Join(step.Commands().List[0], nil)); got != "PING" {
				t.Fatalf("%q is sent instead of the command", got)
			}
			if reply := answer("+QUEUED", "*-1"); step == nil && reply.Err == nil {
				t.Errorf("the reply is %+v", reply)
			}
		}
		if step != nil {
			t.Errorf("after %d tries in as many minutes it tries again", sharedFenceLeast)
		}
	})
}

// While the slot of the lock moves, the node sends the command to another one. Nothing has run, and
// FENCE tries again: its client, which knows no nodes, is not told to ask one.
func TestCommandIsSentElsewhere(t *testing.T) {
	for _, says := range []string{"-ASK 7 127.0.0.1:7001", "-MOVED 7 127.0.0.1:7001"} {
		step := beginTestFence(true, "job", "7", "SET", "{job}k", "v")
		for _, answers := range [][]string{{"+OK"}, {":1", "+OK"}, {says, "-EXECABORT discarded"}} {
			var a script.Answer
			for _, r := range answers {
				a.Raw = append(a.Raw, []byte(r+"\r\n"))
			}
			var reply Reply
			if reply, step = step.Finish(a, nil); step == nil {
				t.Fatalf("%s: the client is told %q", says, reply.Raw)
			}
		}
		if pause, _ := step.Asks.(Pause); pause == 0 {
			t.Errorf("%s: the next step is %+v", says, step)
		}
		_, step = step.Finish(script.Answer{}, nil)
		if string(step.Commands().List[0][0]) != "WATCH" {
			t.Errorf("%s: then it asks %q", says, step.Commands().List)
		}
	}
}
