//go:build faults

package faults_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	processes "lockproxy/internal/test/faults/process"
	"lockproxy/internal/test/testwait"
)

// A lock expires at its time by Redis's clock, although Redis keeps a key through the millisecond
// in which it ends: every command says so.
func TestFaultLastMillisecond(t *testing.T) {
	w := newWitness(t, processes.None)
	a, b := w.dial(0), w.dial(1)
	frozen := time.Now().Truncate(time.Second)
	at := func(after time.Duration) {
		t.Helper()
		if err := w.redis.Freeze(frozen.Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	for i, command := range []string{"UNLOCK KEY TOKEN", "RELOCK KEY TOKEN 600",
		"FENCE KEY TOKEN SET y 1", "UNLOCK KEY"} {
		key := fmt.Sprint("job", i)
		at(0)
		token := a.lock(key, 600)
		at(599 * time.Second)
		if got := b.lock(key, 600); got != 0 {
			t.Errorf("given a second before its time, with token %d", got)
		}
		at(600 * time.Second)
		fill := strings.NewReplacer("KEY", key, "TOKEN", fmt.Sprint(token))
		words := strings.Fields(fill.Replace(command))
		if r, err := a.Do(testwait.Patience, words...); err != nil || r.String() != ":0" &&
			!strings.HasPrefix(r.String(), "-FENCED") {
			t.Errorf("at its time %s answers %q, %v", command, r, err)
		}
		if got := b.lock(key, 600); got <= token {
			t.Errorf("at its time no other client gets it: token %d after %d", got, token)
		}
	}
}
