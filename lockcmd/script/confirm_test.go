package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/names"
	"lockproxy/internal/resp"
)

// value is a reply.
func value(t *testing.T, raw string) resp.Value {
	t.Helper()
	v, err := resp.ParseValue([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Replicas or the disk are asked for only behind a script that gave out a lock, or made one last
// longer, and only if the configuration wants it.
func TestWhatIsConfirmed(t *testing.T) {
	for _, test := range []struct {
		script *Script
		reply  string
		want   bool
	}{
		{LockScript, ":1790000000000000\r\n", true},
		{LockScript, "*2\r\n:1790000000000000\r\n:0\r\n", true},
		{LockScript, "*2\r\n:0\r\n:100\r\n", false},
		{LockScript, "*2\r\n:-1790000000000000\r\n:100\r\n", false},
		{LockScript, "-OOM command not allowed\r\n", false},
		{RelockScript, ":1\r\n", true},
		{RelockScript, ":0\r\n", false},
		{UnlockScript, ":1\r\n", false},
		{UnlockScript, ":1790000000000000\r\n", true}, // to the next one
		{UnlockScript, "*3\r\n:1\r\n:0\r\n:0\r\n", false},
		{UnlockScript, "*3\r\n:0\r\n:0\r\n:0\r\n", false},
	} {
		for wanted, confirm := range map[string]Confirmation{"nothing": {}, "replicas": {Replicas: 1},
			"disk": {Fsync: true}, "both": {Replicas: 2, Fsync: true}} {
			c := Call{Script: test.script, Confirm: confirm}
			got := c.Confirms(Answer{Value: value(t, test.reply)})
			if got != (test.want && wanted != "nothing") {
				t.Errorf("%s of %s, %q: %v", wanted, test.script.Name, test.reply, got)
			}
		}
	}
}

// A release that offers the lock to nobody here asks for no confirmation, and names nobody.
func TestReleaseWithoutWaiters(t *testing.T) {
	m := NewMaker(Config{Proxy: "p", Retention: time.Minute, Confirm: Confirmation{Replicas: 1}})
	u := Release{Id: names.Lock{Key: "job"}, Proof: Proof{Kind: "token", Value: "7"}, Has: "-",
		Wanted: "none"}
	if c := m.Unlock(u); c.Confirm.Needed() || c.Args[1] != "" {
		t.Errorf("it asks for %+v, and names %q", c.Confirm, c.Args[1])
	}
	u.Waiters = []Request{{Key: "job", Timeout: time.Second, Connection: "p-1", Number: "1",
		Owner: "me"}}
	if c := m.Unlock(u); !c.Confirm.Needed() || !strings.Contains(c.Args[1], "p-1") {
		t.Errorf("it asks for %+v, and names %q", c.Confirm, c.Args[1])
	}
}

func TestConfirmationIsAskedFor(t *testing.T) {
	for _, test := range []struct {
		want    Confirmation
		cluster bool
		request string
	}{
		{Confirmation{Replicas: 2}, false, "WAIT 2 1500"},
		{Confirmation{Replicas: 2}, true, "LOCKPROXY.WAIT job 2 1500"},
		{Confirmation{Fsync: true}, false, "WAITAOF 1 0 1500"},
		{Confirmation{Replicas: 2, Fsync: true}, true, "LOCKPROXY.WAIT job 1 2 1500"},
	} {
		test.want.Within = 1500 * time.Millisecond
		c := Call{Keys: [2]string{"job", "record"}, Confirm: test.want}
		if got := strings.Join(c.ConfirmRequest(test.cluster), " "); got != test.request {
			t.Errorf("%+v asks %q, not %q", test.want, got, test.request)
		}
	}
}

// What comes in answer confirms enough, or the error says what is missing. A wait that CLIENT
// UNBLOCK has ended is begun again for the rest of its time.
func TestConfirmations(t *testing.T) {
	replicas, disk := Confirmation{Replicas: 2}, Confirmation{Fsync: true}
	both := Confirmation{Replicas: 2, Fsync: true}
	const unblocked = "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"
	for _, test := range []struct {
		want    Confirmation
		reply   string
		missing string
		again   bool
	}{
		{replicas, ":2\r\n", "", false},
		{replicas, ":3\r\n", "", false},
		{replicas, ":1\r\n", "1 of 2 replicas acknowledged it within 1s", true},
		{replicas, "-ERR no\r\n", "the upstream does not tell how many replicas acknowledged it " +
			"(ERR no)", false},
		{replicas, unblocked, "the upstream does not tell how many replicas acknowledged it " +
			"(UNBLOCKED client unblocked via CLIENT UNBLOCK)", true},
		{disk, "*2\r\n:1\r\n:0\r\n", "", false},
		{disk, "*2\r\n:0\r\n:0\r\n", "the upstream did not have it on disk within 1s", true},
		{disk, "-ERR no\r\n", "the upstream does not tell whether it is on disk (ERR no), which " +
			"takes Redis 7.2 or later with appendonly yes", false},
		{both, "*2\r\n:1\r\n:2\r\n", "", false},
		{both, "*2\r\n:1\r\n:1\r\n", "1 of 2 replicas had it on disk within 1s", true},
		{both, "*2\r\n:0\r\n:2\r\n", "the upstream did not have it on disk within 1s, and 2 of 2 " +
			"replicas did", true},
	} {
		test.want.Within = time.Second
		a := Answer{Confirmed: value(t, test.reply)}
		err, want := a.Unconfirmed(test.want, NotTaken), ""
		if test.missing != "" {
			want = "NOREPLICAS " + test.missing + ": " + NotTaken
		}
		if said := fmt.Sprint(err); err != nil && said != want || (err == nil) != (want == "") {
			t.Errorf("%q for %+v: %v, not %q", test.reply, test.want, err, want)
		}
		if missing, ok := errors.AsType[NoReplicasError](err); ok && missing.Outcome != NotTaken {
			t.Errorf("the outcome is %q", missing.Outcome)
		}
		c := Call{Confirm: test.want}
		again := c.ConfirmAgain(false, a, 400*time.Millisecond)
		if (again != nil) != test.again || again != nil && again[len(again)-1] != "600" {
			t.Errorf("behind %q: %q", test.reply, again)
		}
		if again := c.ConfirmAgain(false, a, time.Second); again != nil {
			t.Errorf("behind %q, when the time is over: %q", test.reply, again)
		}
	}
}
