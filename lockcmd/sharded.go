package lockcmd

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// shardedSubscriptions is a connection that listens to a cluster's sharded channels, one for each
// slot in which clients wait or have session locks. A message goes only to the node of its
// channel's slot, which has the lock. When a slot moves to another node, the old one ends the
// subscription and it is made again.
type shardedSubscriptions struct {
	notifications *releaseNotifications
	changed       chan struct{} // holds one: pending has grown

	// Guarded by releaseNotifications.mu:
	wanted  map[uint16]time.Time // slots to listen for, and when a waiter last wanted them
	pending map[uint16]bool      // slots to subscribe to, some of them again
}

const (
	// subscriptionReview is how often it ends subscriptions without waiters and repeats the others:
	// at a master that has become a replica they still bring messages, but SPUBLISH does not count
	// them.
	subscriptionReview = 5 * time.Second
	// subscriptionIdle is how long a subscription without waiters is kept for the next one.
	subscriptionIdle = 30 * time.Second
)

func newShardedSubscriptions(w *releaseNotifications) *shardedSubscriptions {
	return &shardedSubscriptions{
		notifications: w,
		changed:       make(chan struct{}, 1),
		wanted:        map[uint16]time.Time{},
		pending:       map[uint16]bool{},
	}
}

// channel is this proxy's channel for the locks in a slot.
func (sh *shardedSubscriptions) channel(slot uint16) string {
	return notifyChannel + "{" + slotTag(slot) + "}:" + sh.notifications.proxy
}

// wantLocked subscribes for the locks in a slot. releaseNotifications.mu is held.
func (sh *shardedSubscriptions) wantLocked(slot uint16) {
	if _, known := sh.wanted[slot]; !known {
		sh.subscribeLocked(slot)
	}
	sh.wanted[slot] = time.Now()
}

// subscribeLocked subscribes to a slot's channel soon. releaseNotifications.mu is held.
func (sh *shardedSubscriptions) subscribeLocked(slot uint16) {
	sh.pending[slot] = true
	select {
	case sh.changed <- struct{}{}:
	default:
	}
}

// resubscribe subscribes to all wanted channels, on a new connection.
func (sh *shardedSubscriptions) resubscribe() {
	sh.notifications.mu.Lock()
	defer sh.notifications.mu.Unlock()
	for slot := range sh.wanted {
		sh.subscribeLocked(slot)
	}
}

// receive receives messages until the connection fails or the proxy closes. It calls onSubscribed
// with each subscription.
func (sh *shardedSubscriptions) receive(
	client *redis.Client, as Identity, onSubscribed func(),
) error {
	sh.resubscribe()
	sub := client.SSubscribe(sh.notifications.ctx)
	defer sub.Close()
	connect := func(ctx context.Context) error { return sub.Ping(ctx) }
	if err := sh.notifications.bounded(connect); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(sh.notifications.ctx)
	var subscribing sync.WaitGroup
	subscribing.Go(func() { // ends with ctx, or when it fails
		sh.subscribe(ctx, sub)
		sub.Close() // Receive ignores the end of its ctx
	})
	defer subscribing.Wait()
	defer stop()
	for {
		message, err := sub.Receive(neverConnect)
		if err != nil {
			return err
		}
		switch m := message.(type) {
		case *redis.Message:
			sh.notifications.onMessage(as, m)
		case *redis.Subscription:
			if m.Kind == "sunsubscribe" {
				sh.unsubscribed(m.Channel)
			} else {
				onSubscribed()
			}
		}
	}
}

// unsubscribed subscribes to a wanted channel again, after its slot has moved.
func (sh *shardedSubscriptions) unsubscribed(channel string) {
	slot := slotOf([]byte(channel))
	sh.notifications.mu.Lock()
	defer sh.notifications.mu.Unlock()
	if _, ok := sh.wanted[slot]; ok {
		sh.subscribeLocked(slot)
	}
}

// subscribe sends what wanted and pending ask for, until ctx ends or a request fails.
func (sh *shardedSubscriptions) subscribe(ctx context.Context, sub *redis.PubSub) {
	review := time.NewTicker(subscriptionReview)
	defer review.Stop()
	common := sh.notifications.deadlocks.channels()
	for due := len(common) > 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-sh.changed:
		case <-review.C:
			due = len(common) > 0
			for _, slot := range sh.review() {
				if sub.SUnsubscribe(ctx, sh.channel(slot)) != nil {
					return
				}
			}
		}
		for _, slot := range sh.popPending() { // one by one, as they are in different slots
			if sub.SSubscribe(ctx, sh.channel(slot)) != nil {
				return
			}
		}
		if due && sub.SSubscribe(ctx, common...) != nil {
			return
		}
		due = false
	}
}

func (sh *shardedSubscriptions) popPending() []uint16 {
	sh.notifications.mu.Lock()
	defer sh.notifications.mu.Unlock()
	list := slices.Collect(maps.Keys(sh.pending))
	clear(sh.pending)
	return list
}

// review repeats the subscriptions in use, and returns the slots to unsubscribe from.
func (sh *shardedSubscriptions) review() (idle []uint16) {
	used := sh.notifications.slotsInUse()
	sh.notifications.mu.Lock()
	defer sh.notifications.mu.Unlock()
	for slot, since := range sh.wanted {
		switch {
		case used[slot]:
			sh.pending[slot] = true
		case time.Since(since) > subscriptionIdle:
			delete(sh.wanted, slot)
			idle = append(idle, slot)
		}
	}
	return idle
}

// slotsInUse are the slots in which clients wait here, or have session locks.
func (w *releaseNotifications) slotsInUse() map[uint16]bool {
	w.queues.mu.Lock()
	keys := make([]string, 0, len(w.queues.of))
	for id := range w.queues.of {
		keys = append(keys, id.Key)
	}
	w.queues.mu.Unlock()
	used := map[uint16]bool{}
	for _, key := range keys {
		used[slotOf([]byte(key))] = true
	}
	for i := range w.sessions.keys.bySlot {
		if w.sessions.keys.bySlot[i].Load() > 0 {
			used[uint16(i)] = true
		}
	}
	return used
}
