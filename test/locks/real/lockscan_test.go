package real_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
)

// LOCKSCAN MATCH finds the locks that KEYS finds with the same pattern.
func TestLockScanMatchesAsKeys(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	c, direct := proxytest.GoRedis(t, p.Addr), proxytest.GoRedis(t, server.Addr())
	for _, key := range []string{"foo", `foo\`, `foo\:`, "a", "b", "c", "-", "[", "]", "^", `\`,
		"ab", "a-", "[ab", "foo:lockproxy:", `\\`, "x]"} {
		if err := c.Do(proxytest.Ctx, "LOCK", key, 300).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, pattern := range []string{
		"foo", `foo\`, `foo\\`, `foo\\\`, `foo\:`, `\`, `\\`, `\a`, "*", "?", `*\`, "[", "[^", "[]",
		"[^]", "[ab", "[^ab", "[a-", "[a-c", "[^a-c", `[a\`, `[a-\`,
		`[\]`, `[\]a`, "[-", "[--", "[---", "[a-c-", `[a-c-\`, "[ab]", "[a]b", "[a]-", "?[", `?\`,
		"x]", "[]]", `[\\`, `[\-`,
	} {
		var keys []string
		for _, key := range direct.Keys(proxytest.Ctx, pattern).Val() {
			if _, suffix, ok := strings.Cut(key, ":lockproxy:"); !ok || suffix == "" {
				keys = append(keys, key)
			}
		}
		scan := c.Do(proxytest.Ctx, "LOCKSCAN", "0", "MATCH", pattern, "COUNT", "10000")
		page, err := scan.Slice()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, key := range page[1].([]any) {
			got = append(got, key.(string))
		}
		slices.Sort(keys)
		slices.Sort(got)
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", keys) {
			t.Errorf("%s: LOCKSCAN finds %q, KEYS %q", pattern, got, keys)
		}
	}
}
