//go:build !race

package lockcmd

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/script"
)

// asCaught matches what an error's text says in addition to what happened.
var asCaught = regexp.MustCompile(`^failed: |^ERR |\S*user_script:\d+: |(@\S+:)? ?\d+: |ERR `)

// Whatever is stored or asked, a batch answers and writes what its calls would answer and write one
// after the other, at the same time.
func TestBatchProperty(t *testing.T) {
	client, l := startScripts(t)
	recorded := map[*script.Script]*redis.Script{}
	for _, s := range []*script.Script{script.LockScript, script.UnlockScript, script.RelockScript, script.InfoScript, script.BatchScript} {
		recorded[s] = redis.NewScript(strings.Replace(recordedRun, "%s", s.Source, 1))
	}

	failed, held := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		ctx := t.Context()
		n := rapid.IntRange(1, 6).Draw(t, "calls")
		var stored []storedLock
		var calls []script.Call
		for i := range n {
			st := drawStored(t)
			if st.full = false; i > 0 { // on a full server a script may write once it has deleted
				st.now, st.ttl = stored[0].now, stored[0].ttl
			}
			c := drawCall(t, l, st)
			switch rapid.IntRange(0, 5).Draw(t, "another script") {
			case 0:
				c = l.common.Scripts.Call(script.RelockScript, c.Keys[0], script.NoFastPath, "", st.token, "30000", "ms",
					"600000", "0")
			case 1:
				c = l.common.Scripts.Call(script.InfoScript, c.Keys[0], script.NoFastPath, "")
			}
			c.Keys[0] = fmt.Sprintf("%s %d", c.Keys[0], i)
			c.Keys[1] = keyname.Record([]byte(c.Keys[0]))
			stored, calls = append(stored, st), append(calls, c)
		}

		var wantReplies []any
		var want, got [2]string // writes, and what the keys hold then
		var keys []string
		var args []any
		for i, c := range calls {
			alone := stored[i].run(t, client, recorded[c.Script], c)
			wantReplies = append(wantReplies, asCaught.ReplaceAllString(alone[0], ""))
			if alone[1] != "" {
				want[0] += "\n" + alone[1]
			}
			want[1] += alone[2]
			keys = append(keys, c.Keys[:]...)
			args = append(args, c.Script.Name)
			for _, arg := range c.Args {
				args = append(args, arg)
			}
		}
		setup := client.TxPipeline()
		setup.FlushAll(ctx)
		for i, c := range calls {
			stored[i].store(ctx, setup, c)
		}
		if _, err := setup.Exec(ctx); err != nil {
			t.Fatal(err)
		}
		reply, err := recorded[script.BatchScript].Run(ctx, client, keys,
			append(args, stored[0].circumstances()...)...).Slice()
		if err != nil {
			t.Fatal(err)
		}
		if writes := fmt.Sprint(reply[1]); writes != "" {
			got[0] = "\n" + writes
		}
		got[1] = dumps(t, client, keys)
		results, ok := reply[0].([]any)
		if !ok || len(results) != n {
			t.Fatalf("%d calls were answered %v", n, reply[0])
		}
		for i, one := range results {
			if err, isError := one.(error); isError {
				failed++
				one = err.Error()
			} else {
				held++
			}
			text := asCaught.ReplaceAllString(fmt.Sprint(one), "")
			if text != wantReplies[i] {
				t.Fatalf("%s %q of %+v\nin a batch %q\nalone      %q", calls[i].Script.Name,
					calls[i].Args, stored[i], text, wantReplies[i])
			}
		}
		if got != want {
			t.Fatalf("calls %v\nbatch %q\nalone %q", calls, got, want)
		}
	})
	if failed == 0 || held == 0 {
		t.Errorf("%d calls failed, %d did not", failed, held)
	}
}
