package real_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
)

// A record that LOCK has not written, and that makes its script fail, keeps no other lock from
// LOCKSCAN.
func TestLockScanLeavesOutWhatFails(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	c, direct := proxytest.Dial(t, p.Addr), proxytest.Dial(t, server.Addr())
	c.Lock("good 300")
	c.Expect(proxytest.Unlock("bad", c.Lock("bad 300")), ":1\r\n")
	_, record, _ := strings.Cut(direct.Do("KEYS bad:lockproxy:???"), "\r\nbad")
	const number = "99999999999999999999999"
	direct.DoWords("SET", "bad"+strings.TrimSpace(record), "v1 9 "+number+" "+number+
		" 0 0 0 held c 0 c -\no")
	direct.Expect("SET bad "+number, "+OK\r\n")
	c.Expect("LOCKINFO bad", "-ERR…")
	c.Expect("LOCKSCAN 0 COUNT 1000", "*2\r\n$1\r\n0\r\n*1\r\n$4\r\ngood\r\n")
}

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
