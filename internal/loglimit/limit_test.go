package loglimit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// However many lines are to be logged, so many are within a second, and the next says how many were
// left out.
func TestLimit(t *testing.T) {
	var limit Limit
	now := time.Unix(1000, 0)
	for second := range 3 {
		logged := 0
		for i := range 10 * maxLines {
			omitted, ok := limit.Allow(now.Add(time.Duration(second) * time.Second))
			if ok {
				logged++
			}
			if want := int64(0); ok && i == 0 && second > 0 {
				if want = 9 * maxLines; omitted != want {
					t.Errorf("%d were left out, want %d", omitted, want)
				}
			}
		}
		if logged != maxLines {
			t.Errorf("%d lines in a second", logged)
		}
	}
}

// A kind is a message, at any level that is written, whoever has the logger. What is left out is
// counted, and lines of other kinds are not. Debug lines are for who asks for all of them.
func TestLines(t *testing.T) {
	var out strings.Builder
	now := time.Unix(1000, 0)
	log := lines(hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Debug}),
		func() time.Time { return now })
	count := func(text string) int { return strings.Count(out.String(), text) }
	for i := range 5 * maxLines {
		log.Info("flood", "n", i)
		log.Named("sub").With("x", 1).Warn("warned")
		log.Log(hclog.Error, "failed")
		log.Debug("seen")
	}
	log.Info("another kind")
	for text, want := range map[string]int{"flood: n=": maxLines, "warned": maxLines,
		"failed": maxLines, "seen": 5 * maxLines, "another kind": 1, "not_logged": 0} {
		if got := count(text); got != want {
			t.Errorf("%d lines say %q, want %d", got, text, want)
		}
	}
	now = now.Add(time.Second)
	log.Info("flood", "n", "last")
	if want := fmt.Sprintf("flood: n=last others_not_logged=%d", 4*maxLines); count(want) != 1 {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}

// Messages that are made of what others choose are kinds, too, and take no more memory than others.
func TestLinesOfManyKinds(t *testing.T) {
	var out strings.Builder
	log := lines(hclog.New(&hclog.LoggerOptions{Output: &out}),
		func() time.Time { return time.Unix(1000, 0) })
	for i := range 3 * maxKinds {
		log.Info(fmt.Sprint("kind ", i))
	}
	if got := strings.Count(out.String(), "\n"); got != maxKinds+maxLines {
		t.Errorf("%d lines, want %d", got, maxKinds+maxLines)
	}
}
