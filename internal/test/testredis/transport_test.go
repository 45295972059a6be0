package testredis

import "testing"

// A URL says the transport that was chosen for its servers, and keeps all else.
func TestReach(t *testing.T) {
	reachBy(t, "127.0.0.1:1", way{TLS, "127.0.0.1:11"})
	reachBy(t, "127.0.0.1:2", way{TLS, "127.0.0.1:12"})
	reachBy(t, "127.0.0.1:3", way{Unix, "/run/socket"})
	for url, want := range map[string]string{
		"redis://127.0.0.1:1":                          "rediss://127.0.0.1:11",
		"redis://me:pw@127.0.0.1:1/3":                  "rediss://me:pw@127.0.0.1:11/3",
		"redis+sentinel://127.0.0.1:1,127.0.0.1:2/g/4": "rediss+sentinel://127.0.0.1:11,127.0.0.1:12/g/4",
		"redis+cluster://:pw@127.0.0.1:2,127.0.0.1:1":  "rediss+cluster://:pw@127.0.0.1:12,127.0.0.1:11",
		"redis://127.0.0.1:3":                          "unix:///run/socket",
		"redis://:pw@127.0.0.1:3/5":                    "unix://:pw@/run/socket?db=5",
		"redis://127.0.0.1:4/5":                        "redis://127.0.0.1:4/5",
		"rediss://127.0.0.1:1":                         "rediss://127.0.0.1:1",
		"unix:///run/other":                            "unix:///run/other",
	} {
		if got := Reach(url); got != want {
			t.Errorf("%s is reached by %s, want %s", url, got, want)
		}
	}
}
