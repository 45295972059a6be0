package hints

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/search"
)

func newTestNotifications() *Notifications { return newTestNotificationsOf(false) }

func newTestNotificationsOf(cluster bool) *Notifications {
	jobs := &background.Jobs{Timers: background.NewTimers(), Clients: background.NewClients(nil, false),
		Log: hclog.NewNullLogger(), Scripts: script.NewMaker(script.Config{Proxy: "p", Cluster: cluster})}
	jobs.Timers.Close()
	registry, qs := held.NewRegistry(func(*held.Lock) {}), queue.New(&background.Ways{})
	return NewNotifications(qs, held.NewSessions(jobs, registry, &names.Filter{}, nil),
		search.New(jobs, search.Refuse, qs, registry, nil, nil), nil)
}

// Whoever waits, one user listens; another one if that is refused. A login that is no longer valid
// is forgotten.
func TestAnotherUserListens(t *testing.T) {
	w := newTestNotifications()
	a, b := names.Identity{User: "a"}, names.Identity{User: "b"}
	w.Listen(names.Identity{User: "a", DB: 3, Proto: 3}, "job")
	w.Listen(b, "job")
	first := *w.next(names.Identity{})
	if again := *w.next(first); again != first {
		t.Errorf("%v, then %v", first, again)
	}
	w.failed(first, errors.New("NOPERM no channels"))
	second := *w.next(first)
	if second == first || second != a && second != b {
		t.Errorf("%v is refused, and %v listens", first, second)
	}
	w.failed(second, errors.New("WRONGPASS"))
	if as := w.next(second); as != nil || w.listening {
		t.Errorf("%v listens", as)
	}
	if w.logins[first] = time.Now().Add(-2 * refusedRetry); len(w.logins) != 1 {
		t.Errorf("logins: %v", w.logins)
	}
	w.Listen(first, "job")
	if as := w.next(second); as == nil || *as != first {
		t.Errorf("later %v listens", as)
	}
}

// However many users wait, few are remembered, and those that were refused make room for others.
func TestListenersAreBounded(t *testing.T) {
	w := newTestNotifications()
	for i := range maxListeners + 1 {
		w.Listen(names.Identity{User: fmt.Sprint(i)}, "job")
	}
	if len(w.logins) != maxListeners {
		t.Errorf("%d logins", len(w.logins))
	}
	for as := range w.logins {
		w.failed(as, errors.New("NOPERM"))
	}
	w.Listen(names.Identity{User: "allowed"}, "job")
	as := w.next(names.Identity{})
	if as == nil || as.User != "allowed" || len(w.logins) > maxListeners {
		t.Errorf("%v listens, of %d", as, len(w.logins))
	}
}

// Nobody listens once nobody has needed it for a while.
func TestListeningEnds(t *testing.T) {
	w := newTestNotifications()
	w.Listen(names.Identity{}, "job")
	if w.next(names.Identity{}) == nil {
		t.Error("it does not listen")
	}
	w.wanted = time.Now().Add(-subscriptionIdle)
	if w.next(names.Identity{}) != nil || w.listening {
		t.Error("it listens for nobody")
	}
}

// A node of a cluster that has been asked again and again, and says nothing, is heard no more. Once
// it answers, session locks are verified: messages may have been missed.
func TestASilentNodeIsNotHeard(t *testing.T) {
	w := newTestNotificationsOf(true)
	slot := keyname.SlotOf([]byte("job"))
	made := &redis.Subscription{Kind: "ssubscribe", Channel: w.slots.channel(slot)}
	w.Listen(names.Identity{}, "job")
	for range 3 * maxMissed {
		w.slots.review()
		if w.slots.onSubscription(made); !w.hears("job") {
			t.Fatal("it is not heard")
		}
	}
	for range maxMissed {
		if w.slots.review(); !w.hears("job") {
			t.Fatal("it is heard no more, too early")
		}
	}
	if w.slots.review(); w.hears("job") || !w.slots.missing[slot] {
		t.Error("it is heard, though it is silent")
	}
	if w.slots.onSubscription(made); !w.hears("job") || w.slots.missing[slot] {
		t.Error("it is not heard again")
	}
}
