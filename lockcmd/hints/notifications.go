package hints

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/search"
)

// Notifications hears from other proxies that a lock is reserved for the first waiter here.
// The first waiter polls, too: a message may be lost, or no user may be allowed to subscribe.
//
// It also hears that another proxy has released a lock of a holder here: see VerifySessions.
//
// It listens while any client waits or has a session lock, and subscribes as one of the users of
// these: the messages are for the proxy, whoever waits. It listens on one channel for all locks, or
// in a cluster on one for each slot of such locks (slotSubscriptions). If the user is refused, it
// tries the others.
type Notifications struct {
	*background.Jobs
	queues    *queue.Queues
	sessions  *held.Sessions
	deadlocks *search.Deadlocks
	// unwanted releases a lock that is reserved for this proxy, where nobody waits for it any more.
	unwanted func(as names.Identity, id names.Lock)

	subscribed atomic.Bool        // to the one channel for all locks
	slots      *slotSubscriptions // nil unless the upstream is a cluster

	mu        sync.Mutex
	logins    map[names.Identity]time.Time // guarded by mu; when each was last refused
	wanted    time.Time                    // guarded by mu; when a waiter or session last came
	listening bool                         // guarded by mu
	noSharded bool                         // guarded by mu; the nodes know no SPUBLISH
}

const (
	// The pauses before it subscribes again when that fails again and again. A subscription that
	// has lasted for subscriptionLasts is made again at once.
	minListenRetry    = 10 * time.Millisecond
	maxListenRetry    = time.Second
	subscriptionLasts = 200 * time.Millisecond
	// refusedRetry is how long after a user was refused it is tried again.
	refusedRetry = time.Second
	// maxListeners bounds the users that can be tried. One is enough.
	maxListeners = 64
	// listenBeat is how often the upstream is asked for a sign of life, and how often it is looked
	// whether anybody needs to hear anything. maxMissed signs may be missed.
	listenBeat = 5 * time.Second
	maxMissed  = 3
	// subscriptionIdle is how long a subscription without waiters is kept for the next one.
	subscriptionIdle = 30 * time.Second
)

func NewNotifications(
	qs *queue.Queues, s *held.Sessions, deadlocks *search.Deadlocks,
	unwanted func(names.Identity, names.Lock),
) *Notifications {
	w := &Notifications{
		Jobs: s.Jobs, queues: qs, sessions: s, deadlocks: deadlocks, unwanted: unwanted,
		logins: map[names.Identity]time.Time{},
	}
	if w.Scripts.Cluster {
		w.slots = newSlotSubscriptions(w)
	}
	qs.Hears(w.hears)
	return w
}

// hears reports whether messages about a lock come.
func (w *Notifications) hears(key string) bool {
	return w.subscribed.Load() || w.slots != nil && w.slots.hears(key)
}

// Listen subscribes to messages about a lock, unless the proxy is subscribed. It may do so as a
// waiter's user.
func (w *Notifications) Listen(as names.Identity, key string) {
	as.DB, as.Proto = 0, 0
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted = time.Now()
	if _, known := w.logins[as]; !known {
		w.addLoginLocked(as)
	}
	if w.slots != nil {
		w.slots.wantLocked(keyname.SlotOf([]byte(key)))
	}
	if !w.listening && w.loginLocked(names.Identity{}) != nil {
		w.listening = true
		w.Timers.After(0, w.listen)
	}
}

// addLoginLocked remembers a user, in place of one that was refused if there are too many. mu is
// held.
func (w *Notifications) addLoginLocked(as names.Identity) {
	if len(w.logins) >= maxListeners {
		for other, refused := range w.logins {
			if !refused.IsZero() {
				delete(w.logins, other)
				break
			}
		}
	}
	if len(w.logins) < maxListeners {
		w.logins[as] = time.Time{}
	}
}

// loginLocked is a user that can be tried, last if that is one, nil if there is none. mu is held.
func (w *Notifications) loginLocked(last names.Identity) (found *names.Identity) {
	for as, refused := range w.logins {
		if time.Since(refused) < refusedRetry {
			continue
		}
		if found == nil || as == last {
			found = &as
		}
	}
	return found
}

// next is the user that listens from now on, last if possible. It is nil if nobody needs to hear
// anything, or no user may listen: then listen must end, and the next waiter or session lock begins
// it again.
func (w *Notifications) next(last names.Identity) (as *names.Identity) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.neededLocked() {
		as = w.loginLocked(last)
	} else {
		clear(w.logins)
	}
	w.listening = as != nil
	return as
}

// needed reports whether a client waits or has a session lock, or has until lately.
func (w *Notifications) needed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.neededLocked()
}

func (w *Notifications) neededLocked() bool {
	return w.queues.Waiting() || w.sessions.AnySession() ||
		time.Since(w.wanted) < subscriptionIdle
}

// failed notes why a user's connection has ended. A login that is no longer valid is forgotten.
func (w *Notifications) failed(as names.Identity, err error) (refused bool) {
	denied, invalid := isRefused(err)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case invalid:
		delete(w.logins, as)
	case denied:
		if _, known := w.logins[as]; known {
			w.logins[as] = time.Now()
		}
	}
	return denied || invalid
}

// listen receives messages until nobody needs them, or no user may subscribe.
func (w *Notifications) listen(ctx context.Context) {
	loopguard.MayWait()
	var last names.Identity
	others := listeners{end: func() {}}
	defer func() { others.end() }()
	for failures := 0; ctx.Err() == nil; {
		as := w.next(last)
		if as == nil {
			return
		}
		if w.slots != nil && (others.as == nil || *others.as != *as) {
			others.end()
			others = w.listenToAllWaits(ctx, *as)
		}
		last = *as
		began := time.Now()
		err := w.receive(ctx, *as)
		switch {
		case w.failed(*as, err):
			continue
		case time.Since(began) >= subscriptionLasts:
			failures = 0
		default:
			failures++
		}
		pauseAfter(ctx, failures, minListenRetry, maxListenRetry)
	}
}

// pauseAfter pauses before a connection is opened again, unless it has failed for the first time.
func pauseAfter(ctx context.Context, failures int, least, most time.Duration) {
	if failures < 2 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(min(least<<min(failures-2, 16), most)):
	}
}

// isRefused reports whether a user may not do what was asked, or can no longer log in.
func isRefused(err error) (denied, invalid bool) {
	if err == nil {
		return false, false
	}
	text := err.Error()
	var login interface{ Said() string } // the upstream's words to a login of the proxy
	if errors.As(err, &login) {
		text = login.Said()
	}
	return strings.HasPrefix(text, "NOPERM"),
		strings.HasPrefix(text, "NOAUTH") || strings.HasPrefix(text, "WRONGPASS")
}

// receive receives messages as a user until the connection fails, or nobody needs it.
func (w *Notifications) receive(ctx context.Context, as names.Identity) (err error) {
	sharded := w.slots != nil && !w.lacksSharded()
	if sharded {
		err = w.receiveFrom(ctx, as, w.slots)
	}
	if sharded && redis.HasErrorPrefix(err, "unknown command") {
		w.mu.Lock()
		w.noSharded, sharded = true, false
		w.mu.Unlock()
	}
	if !sharded {
		err = w.receiveFrom(ctx, as, nil)
	}
	if ctx.Err() == nil && err != nil {
		w.Log.Debug("cannot subscribe to releases by other proxies: waiters poll",
			"error", err)
	}
	return err
}

func (w *Notifications) lacksSharded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.noSharded
}

// verify verifies session locks: messages may have been missed.
func (w *Notifications) verify() { w.sessions.VerifyAll(held.LostElsewhere) }

// receiveFrom receives messages on a new connection: on the one channel for all locks, or on those
// of slots.
func (w *Notifications) receiveFrom(
	ctx context.Context, as names.Identity, slots *slotSubscriptions,
) error {
	loopguard.MayWait()
	ctx, cancel := context.WithCancel(ctx)
	sub := w.Clients.Client(as).Subscribe(ctx)
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { sub.Close() }) // Receive ignores the end of its ctx
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	// Connecting can take long, and cannot be interrupted.
	connecting, connected := context.WithTimeout(ctx, w.Clients.Patience())
	var err error
	if slots == nil {
		err = sub.Subscribe(connecting,
			append([]string{keyname.NotifyChannel + w.Scripts.Proxy}, w.deadlocks.Channels()...)...)
		defer w.subscribed.Store(false)
	} else if err = sub.Ping(connecting); err == nil {
		defer slots.lost()
		running.Go(func() { // ends with ctx, or when it fails
			slots.subscribe(ctx, sub)
			sub.Close()
		})
	}
	connected()
	if err != nil {
		return err
	}
	var missed atomic.Int32
	running.Go(func() { // ends with ctx
		w.beat(ctx, sub, slots == nil, &missed)
		sub.Close()
	})
	for {
		message, err := sub.Receive(neverConnect)
		if err != nil {
			if !w.needed() {
				return nil
			}
			return err
		}
		missed.Store(0)
		switch m := message.(type) {
		case *redis.Message:
			w.onMessage(m)
		case *redis.Subscription:
			switch {
			case slots != nil:
				slots.onSubscription(m)
			case m.Kind == "subscribe" && !w.subscribed.Swap(true):
				w.verify()
			}
		}
	}
}

// beat returns when a connection has become silent, or nobody needs it. It asks for signs of life
// if asks says so; subscriptions to slots are repeated anyway.
func (w *Notifications) beat(
	ctx context.Context, sub *redis.PubSub, asks bool, missed *atomic.Int32,
) {
	ticks := time.NewTicker(listenBeat)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if !w.needed() {
			return
		}
		if asks && (missed.Add(1) > maxMissed || sub.Ping(ctx) != nil) {
			return
		}
	}
}

// neverConnect keeps Receive from connecting again by itself.
var neverConnect = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// onMessage looks at what a message claims. Anybody who may use the channel can have sent it, so it
// costs no more than a look: the first waiter polls the lock that it names, not too often. If
// another proxy is said to have released a session lock, that lock is verified. If no client waits
// any more, a reservation is released, but only of a lock for which one has waited until lately.
// It also passes on messages about deadlocks.
func (w *Notifications) onMessage(m *redis.Message) {
	if search.IsWaits(m.Channel) {
		w.deadlocks.OnMessage(m.Payload)
		return
	}
	payload, lost := strings.CutPrefix(m.Payload, "lost:")
	hash, ok := names.ParseHash(payload)
	switch {
	case !ok:
	case lost:
		w.sessions.VerifyHash(hash, held.LostElsewhere)
	default:
		if id, as, left := w.queues.Reserved(hash, time.Now()); left {
			w.unwanted(as, id)
		}
	}
}
