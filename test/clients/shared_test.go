//go:build clients

package clients_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
)

// The step lock-shared prints the two holders of the lock that it leaves, and the error by which it
// was told of two owners that wait for each other.
var printedByShared = regexp.MustCompile(
	`(?m)^holds (\S+:)shared (\d+) (\d+)\nrefused DEADLOCK (.*)\nok lock-shared$`)

func checkShared(t *testing.T, addr, printed string) {
	t.Helper()
	m := printedByShared.FindStringSubmatch(printed)
	if m == nil {
		t.Fatalf("lock-shared is not there, or prints something else:\n%s", printed)
	}
	prefix, first, second := m[1], m[2], m[3]
	cycle := fmt.Sprintf("%q waits for %q, held by %[3]q, who waits for %[4]q, held by %[1]q: ",
		"anna", prefix+"ben", "ben", prefix+"anna")
	if !strings.HasPrefix(m[4], cycle) {
		t.Errorf("DEADLOCK %s, want %s", m[4], cycle)
	}

	rdb := proxytest.GoRedis(t, addr)
	key := prefix + "shared"
	holders, err := rdb.Do(t.Context(), "LOCKINFO", key, "HOLDERS").Slice()
	if err != nil {
		t.Fatal(err)
	}
	var held []string
	for _, h := range holders {
		m := h.(map[any]any)
		held = append(held, fmt.Sprintf("%v %v", m["token"], m["mode"]))
	}
	if want := []string{second + " shared", first + " shared"}; !slices.Equal(held, want) {
		t.Errorf("holders %q, want %q", held, want)
	}
	for _, token := range []string{first, second} {
		if n, err := rdb.Do(t.Context(), "UNLOCK", key, token).Int(); n != 1 {
			t.Errorf("UNLOCK by token %s: %d, %v", token, n, err)
		}
	}
	for _, name := range []string{"shared", "limit", "{all}1", "{all}2", "anna", "ben"} {
		if n, err := rdb.Exists(t.Context(), prefix+name).Result(); n != 0 || err != nil {
			t.Errorf("%s%s is left: %v", prefix, name, err)
		}
	}
}
