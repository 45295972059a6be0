package hints

import (
	"context"
	"strconv"
	"strings"
	"sync"
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
// The first waiter polls, too: a message may be lost, or the user may not be allowed to subscribe.
//
// It also hears that another proxy has released a lock of a holder here: see VerifySessions.
//
// It listens while any client waits or has a session lock: on one channel for all locks, or in a
// cluster on one for each slot of such locks (shardedSubscriptions).
type Notifications struct {
	*background.Jobs
	queues    *queue.Queues
	sessions  *held.Sessions
	deadlocks *search.Deadlocks
	// unwanted releases a lock that is reserved for this proxy, where nobody waits for it any more.
	unwanted func(as names.Identity, id names.Lock)

	mu         sync.Mutex
	listening  map[names.Identity]*shardedSubscriptions // guarded by mu; user and password only
	subscribed int                                      // guarded by mu; how many of them are
	noSharded  bool                                     // guarded by mu; the nodes know no SPUBLISH
}

// The pauses before it subscribes again after a failure. If it was subscribed, they start again.
const (
	minListenRetry = 10 * time.Millisecond
	maxListenRetry = time.Second
)

// maxListening bounds the connections that listen. One is enough, if its user may subscribe.
const maxListening = 8

func NewNotifications(
	qs *queue.Queues, s *held.Sessions, deadlocks *search.Deadlocks,
	unwanted func(names.Identity, names.Lock),
) *Notifications {
	return &Notifications{
		Jobs: s.Jobs, queues: qs, sessions: s, deadlocks: deadlocks, unwanted: unwanted,
		listening: map[names.Identity]*shardedSubscriptions{},
	}
}

// Listen subscribes to messages about a lock, as a waiter's user, unless that user is subscribed.
func (w *Notifications) Listen(as names.Identity, key string) {
	as.DB = 0
	w.mu.Lock()
	defer w.mu.Unlock()
	sh := w.listening[as]
	if sh == nil {
		if len(w.listening) >= maxListening {
			return
		}
		sh = newShardedSubscriptions(w)
		w.listening[as] = sh
		w.Timers.After(0, func(ctx context.Context) { w.listenWhileWanted(ctx, as, sh) })
	}
	if w.Scripts.Cluster {
		sh.wantLocked(keyname.SlotOf([]byte(key)))
	}
}

// listenWhileWanted receives messages until no client waits or has a session lock, or the user is
// refused. The user's next waiter or session lock tries again.
func (w *Notifications) listenWhileWanted(
	ctx context.Context, as names.Identity, sh *shardedSubscriptions,
) {
	loopguard.MayWait()
	if w.Scripts.Cluster {
		var others sync.WaitGroup
		defer others.Wait()
		waitsCtx, cancel := context.WithCancel(ctx)
		defer cancel()
		for _, channel := range w.deadlocks.Channels() {
			others.Go(func() { w.listenToWaits(waitsCtx, as, channel) })
		}
	}
	for pause := minListenRetry; ; pause = min(2*pause, maxListenRetry) {
		subscribed, err := w.receive(ctx, as, sh)
		refused := isRefused(err)
		switch {
		case refused:
			pause = maxListenRetry
		case subscribed:
			pause = minListenRetry
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		if w.forget(as, refused || ctx.Err() != nil) {
			return
		}
	}
}

// isRefused reports whether a user may not subscribe.
func isRefused(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "NOAUTH") ||
		redis.HasErrorPrefix(err, "WRONGPASS")
}

// forget removes a connection that is no longer needed, or has ended for good, and reports whether
// it did.
func (w *Notifications) forget(as names.Identity, ended bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !ended && (w.queues.Waiting() || w.sessions.AnySession()) {
		return false
	}
	delete(w.listening, as)
	return true
}

// receive receives messages until the connection fails. subscribed says that it was subscribed.
func (w *Notifications) receive(
	ctx context.Context, as names.Identity, sh *shardedSubscriptions,
) (subscribed bool, err error) {
	onSubscribed := func() {
		if !subscribed {
			subscribed = true
			w.countSubscribed(1)
			w.sessions.VerifySessions(0, nil, held.LostElsewhere) // messages may have been missed
		}
	}
	sharded := w.Scripts.Cluster && !w.lacksSharded()
	if sharded {
		err = w.receiveFrom(ctx, as, sh, onSubscribed)
	}
	if sharded && redis.HasErrorPrefix(err, "unknown command") {
		w.mu.Lock()
		w.noSharded, sharded = true, false
		w.mu.Unlock()
	}
	if !sharded {
		err = w.receiveFrom(ctx, as, nil, onSubscribed)
	}
	if subscribed {
		w.countSubscribed(-1)
	} else {
		w.countSubscribed(0)
	}
	if ctx.Err() == nil {
		w.Log.Debug("cannot listen for releases by other proxies: waiters poll",
			"error", err)
	}
	return subscribed, err
}

// countSubscribed adds n to the connections that are subscribed.
func (w *Notifications) countSubscribed(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subscribed += n
	w.queues.SetSubscribed(w.subscribed > 0)
}

func (w *Notifications) lacksSharded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.noSharded
}

// receiveFrom receives messages on a new connection: on the one channel for all locks, or on those
// of sh. It calls onSubscribed with each subscription.
func (w *Notifications) receiveFrom(
	ctx context.Context, as names.Identity, sh *shardedSubscriptions, onSubscribed func(),
) error {
	loopguard.MayWait()
	ctx, cancel := context.WithCancel(ctx)
	sub := w.Clients.Client(as).Subscribe(ctx)
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { sub.Close() }) // Receive ignores the end of its ctx
	defer stop()
	var subscribing sync.WaitGroup
	defer subscribing.Wait()
	defer cancel()
	// Connecting can take long, and cannot be interrupted.
	connecting, connected := context.WithTimeout(ctx, w.Clients.Patience())
	var err error
	if sh == nil {
		err = sub.Subscribe(connecting,
			append([]string{keyname.NotifyChannel + w.Scripts.Proxy}, w.deadlocks.Channels()...)...)
	} else if err = sub.Ping(connecting); err == nil {
		subscribing.Go(func() { // ends with ctx, or when it fails
			sh.subscribe(ctx, sub)
			sub.Close()
		})
	}
	connected()
	if err != nil {
		return err
	}
	for {
		message, err := sub.Receive(neverConnect)
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *redis.Message:
			w.onMessage(as, m)
		case *redis.Subscription:
			switch {
			case m.Kind != "sunsubscribe":
				onSubscribed()
			case sh != nil:
				sh.unsubscribed(m.Channel)
			}
		}
	}
}

// neverConnect keeps Receive from connecting again by itself.
var neverConnect = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// OnMessage makes the first waiter poll the lock that a message names. If no client waits any more,
// it releases the reservation. If another proxy has released a session lock, it verifies that lock.
// It also passes on messages about deadlocks.
func (w *Notifications) onMessage(as names.Identity, m *redis.Message) {
	if search.IsWaits(m.Channel) {
		w.deadlocks.OnMessage(m.Payload)
		return
	}
	payload, lost := strings.CutPrefix(m.Payload, "lost:")
	db, key, _ := strings.Cut(payload, ":")
	n, err := strconv.Atoi(db)
	if err != nil {
		return
	}
	if lost {
		w.sessions.VerifySessions(n, []string{key}, held.LostElsewhere)
		return
	}
	as.DB = n
	id := names.Lock{DB: n, Key: key}
	if !w.queues.Of(id).Reserved() {
		w.unwanted(as, id)
	}
}
