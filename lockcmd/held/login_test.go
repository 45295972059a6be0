package held

import (
	"testing"

	"lockproxy/internal/names"
)

// The proxy works for a session lock with the login that its client has now, in the lock's database.
// RESET logs the client out: then the login of its LOCK counts again.
func TestLoginOfASessionLock(t *testing.T) {
	as := names.Identity{User: "app", Password: "one", LoggedIn: true, DB: 3}
	lock := &Lock{As: as}
	if got := lock.Login(); got != as {
		t.Errorf("without a session: %+v", got)
	}
	renewed := names.Identity{User: "app", Password: "two", LoggedIn: true, DB: 3}
	for _, test := range []struct {
		client string
		now    names.Identity
		want   names.Identity
	}{
		{"as it was", as, as},
		{"logged in again in another database",
			names.Identity{User: "app", Password: "two", LoggedIn: true, DB: 5}, renewed},
		{"logged in again, with RESP3",
			names.Identity{User: "app", Password: "two", LoggedIn: true, DB: 3, Proto: 3},
			names.Identity{User: "app", Password: "two", LoggedIn: true, DB: 3, Proto: 3}},
		{"after RESET", names.Identity{}, as},
	} {
		lock.by = &Holder{Login: func() names.Identity { return test.now }}
		if got := lock.Login(); got != test.want {
			t.Errorf("%s: %+v, not %+v", test.client, got, test.want)
		}
	}
}
