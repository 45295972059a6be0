package lockcmd

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// releaseNotifications hears from other proxies that a lock is reserved for the first waiter here.
// The first waiter polls, too: a message may be lost, or the user may not be allowed to subscribe.
//
// It also hears that another proxy has released a lock of a holder here: see VerifySessions.
//
// It listens while any client waits or has a session lock: on one channel for all locks, or in a
// cluster on one for each slot of such locks (shardedSubscriptions).
type releaseNotifications struct {
	*background
	queues   *queues
	sessions *sessionLocks
	releases *releases

	deadlocks *deadlocks

	ctx        context.Context
	cancel     context.CancelFunc
	goroutines sync.WaitGroup

	mu         sync.Mutex
	listening  map[Identity]*shardedSubscriptions // guarded by mu; user and password only
	subscribed int                                // guarded by mu; how many of them are
	closed     bool                               // guarded by mu
	noSharded  bool                               // guarded by mu; the nodes know no SPUBLISH
}

// notifyChannel begins the names of the channels. unlock.lua has it, too.
const notifyChannel = "lockproxy:wake:"

// The pauses before it subscribes again after a failure. If it was subscribed, they start again.
const (
	minListenRetry = 10 * time.Millisecond
	maxListenRetry = time.Second
)

// maxListening bounds the connections that listen. One is enough, if its user may subscribe.
const maxListening = 8

func newReleaseNotifications(of *releases, deadlocks *deadlocks) *releaseNotifications {
	w := &releaseNotifications{
		background: of.background, queues: of.queues, sessions: of.sessions, releases: of,
		deadlocks: deadlocks, listening: map[Identity]*shardedSubscriptions{},
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// listen subscribes to messages about a lock, as a waiter's user, unless that user is subscribed.
func (w *releaseNotifications) listen(as Identity, key string) {
	as.DB = 0
	w.mu.Lock()
	defer w.mu.Unlock()
	sh := w.listening[as]
	if sh == nil {
		if w.closed || len(w.listening) >= maxListening {
			return
		}
		sh = newShardedSubscriptions(w)
		w.listening[as] = sh
		// It ends with w.ctx, or when no client waits.
		w.goroutines.Go(func() { w.listenWhileWanted(as, sh) })
	}
	if w.cfg.Cluster {
		sh.wantLocked(slotOf([]byte(key)))
	}
}

// listenWhileWanted receives messages until no client waits or has a session lock, or the user is
// refused. The user's next waiter or session lock tries again.
func (w *releaseNotifications) listenWhileWanted(as Identity, sh *shardedSubscriptions) {
	for pause := minListenRetry; ; pause = min(2*pause, maxListenRetry) {
		subscribed, err := w.receive(as, sh)
		refused := redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "NOAUTH") ||
			redis.HasErrorPrefix(err, "WRONGPASS")
		switch {
		case refused:
			pause = maxListenRetry
		case subscribed:
			pause = minListenRetry
		}
		select {
		case <-w.ctx.Done():
		case <-time.After(pause):
		}
		if w.forget(as, refused) {
			return
		}
	}
}

// forget removes a connection that is no longer needed or was refused, and reports whether it did.
func (w *releaseNotifications) forget(as Identity, refused bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !refused && !w.closed && (w.queues.Waiting() || w.sessions.AnySession()) {
		return false
	}
	delete(w.listening, as)
	return true
}

// receive receives messages until the connection fails. subscribed says that it was subscribed.
func (w *releaseNotifications) receive(
	as Identity, sh *shardedSubscriptions,
) (subscribed bool, err error) {
	client := w.clients.client(as)
	onSubscribed := func() {
		if !subscribed {
			subscribed = true
			w.countSubscribed(1)
			w.sessions.VerifySessions(0, nil, lostElsewhere) // messages may have been missed
		}
	}
	sharded := w.cfg.Cluster && !w.lacksSharded()
	if sharded {
		err = sh.receive(client, as, onSubscribed)
	}
	if sharded && redis.HasErrorPrefix(err, "unknown command") {
		w.mu.Lock()
		w.noSharded, sharded = true, false
		w.mu.Unlock()
	}
	if !sharded {
		err = w.receiveAll(client, as, onSubscribed)
	}
	if subscribed {
		w.countSubscribed(-1)
	} else {
		w.countSubscribed(0)
	}
	if w.ctx.Err() == nil {
		w.log.Debug("cannot listen for releases by other proxies: waiters poll",
			"error", err)
	}
	return subscribed, err
}

// countSubscribed adds n to the connections that are subscribed.
func (w *releaseNotifications) countSubscribed(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subscribed += n
	w.queues.unsubscribed.Store(w.subscribed == 0)
}

func (w *releaseNotifications) lacksSharded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.noSharded
}

// receiveAll receives messages on the one channel for all locks.
func (w *releaseNotifications) receiveAll(
	client *redis.Client, as Identity, onSubscribed func(),
) error {
	sub := client.Subscribe(w.ctx)
	defer sub.Close()
	stop := context.AfterFunc(w.ctx, func() { sub.Close() }) // Receive ignores the end of its ctx
	defer stop()
	channels := append([]string{notifyChannel + w.proxy}, w.deadlocks.channels()...)
	err := w.bounded(func(ctx context.Context) error {
		return sub.Subscribe(ctx, channels...)
	})
	if err != nil {
		return err
	}
	for {
		message, err := sub.Receive(neverConnect)
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *redis.Subscription:
			onSubscribed()
		case *redis.Message:
			w.onMessage(as, m)
		}
	}
}

// bounded calls a function that may connect: it waits for the upstream, and cannot be interrupted.
func (w *releaseNotifications) bounded(call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(w.ctx, backgroundTimeout)
	defer cancel()
	return call(ctx)
}

// neverConnect keeps Receive from connecting again by itself: see bounded.
var neverConnect = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// onMessage makes the first waiter poll the lock that a message names. If no client waits any more,
// it releases the reservation. If another proxy has released a session lock, it verifies that lock.
// It also passes on messages about deadlocks.
func (w *releaseNotifications) onMessage(as Identity, m *redis.Message) {
	if m.Channel == waitsChannel {
		w.deadlocks.onMessage(m.Payload)
		return
	}
	payload, lost := strings.CutPrefix(m.Payload, "lost:")
	db, key, _ := strings.Cut(payload, ":")
	n, err := strconv.Atoi(db)
	if err != nil {
		return
	}
	if lost {
		w.sessions.VerifySessions(n, []string{key}, lostElsewhere)
		return
	}
	as.DB = n
	id := LockID{n, key}
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	if q := w.queues.of[id]; q != nil {
		q.quota = 0
		q.pollNow()
		return
	}
	w.releases.releaseReservation(as, id)
}

func (w *releaseNotifications) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cancel()
	w.goroutines.Wait()
}
