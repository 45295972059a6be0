package hints

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/internal/slot"
	"lockproxy/lockcmd/keyname"
)

// slotSubscriptions are those to a cluster's sharded channels, one for each slot in which clients
// wait or have session locks. A message goes only to the node of its channel's slot, which has the
// lock. When a slot moves to another node, the old one ends the subscription and it is made again.
type slotSubscriptions struct {
	notifications *Notifications
	pending       chan uint16 // slots to subscribe to soon. If it is full, the review does
	heard         [slot.Count]atomic.Bool
	// wanted are slots to listen for, and when a waiter last wanted them. Notifications.mu
	// guards it.
	wanted map[uint16]time.Time
	// missing are those that a new connection has asked for and not heard of yet. any says that it
	// has heard of one. Notifications.mu guards both.
	missing map[uint16]bool
	any     bool
	// unanswered is how often each wanted one was asked for since a node has last confirmed it.
	// Notifications.mu guards it.
	unanswered map[uint16]int
}

// subscriptionReview is how often it ends subscriptions without waiters and repeats the others: at a
// master that has become a replica they still bring messages, but SPUBLISH does not count them.
const subscriptionReview = 5 * time.Second

func newSlotSubscriptions(w *Notifications) *slotSubscriptions {
	return &slotSubscriptions{notifications: w, pending: make(chan uint16, slot.Count),
		wanted: map[uint16]time.Time{}, missing: map[uint16]bool{}, unanswered: map[uint16]int{}}
}

// channel is this proxy's channel for the locks in a slot.
func (sh *slotSubscriptions) channel(slot uint16) string {
	return keyname.SlotChannel(slot, sh.notifications.Scripts.Proxy)
}

// hears reports whether messages about a lock come.
func (sh *slotSubscriptions) hears(key string) bool {
	return sh.heard[keyname.SlotOf([]byte(key))].Load()
}

// wantLocked subscribes for the locks in a slot. Notifications.mu is held.
func (sh *slotSubscriptions) wantLocked(slot uint16) {
	if _, known := sh.wanted[slot]; !known {
		sh.subscribeLocked(slot)
	}
	sh.wanted[slot] = time.Now()
}

// subscribeLocked subscribes to a slot's channel soon. Notifications.mu is held.
func (sh *slotSubscriptions) subscribeLocked(slot uint16) {
	select {
	case sh.pending <- slot:
	default:
	}
}

// lost notes that the connection has ended.
func (sh *slotSubscriptions) lost() {
	for i := range sh.heard {
		sh.heard[i].Store(false)
	}
}

// onSubscription notes that a subscription has been made or has ended. A wanted one is made again:
// its slot has moved. On a new connection, session locks are verified after the first one and the
// last one.
func (sh *slotSubscriptions) onSubscription(m *redis.Subscription) {
	if m.Channel == "" {
		return
	}
	slot, made := keyname.SlotOf([]byte(m.Channel)), m.Kind == "ssubscribe"
	sh.heard[slot].Store(made)
	w := sh.notifications
	w.mu.Lock()
	delete(sh.unanswered, slot)
	verify := made && sh.missing[slot]
	delete(sh.missing, slot)
	verify, sh.any = verify && (!sh.any || len(sh.missing) == 0), sh.any || verify
	if _, wanted := sh.wanted[slot]; wanted && !made {
		sh.subscribeLocked(slot)
	}
	w.mu.Unlock()
	if verify {
		w.verify()
	}
}

// subscribe subscribes to what is wanted, until ctx ends or a request fails.
func (sh *slotSubscriptions) subscribe(ctx context.Context, sub *redis.PubSub) {
	loopguard.MayWait()
	review := time.NewTicker(subscriptionReview)
	defer review.Stop()
	for first := true; ; first = false {
		used, idle := sh.review()
		if first {
			sh.begin(used)
		}
		for _, slot := range idle {
			if sub.SUnsubscribe(ctx, sh.channel(slot)) != nil {
				return
			}
		}
		for _, slot := range used { // one by one, as they are in different slots
			if sub.SSubscribe(ctx, sh.channel(slot)) != nil {
				return
			}
		}
		for reviewed := true; reviewed; {
			select {
			case <-ctx.Done():
				return
			case <-review.C:
				reviewed = false
			case slot := <-sh.pending:
				if sub.SSubscribe(ctx, sh.channel(slot)) != nil {
					return
				}
			}
		}
	}
}

// begin notes what a new connection asks for.
func (sh *slotSubscriptions) begin(slots []uint16) {
	sh.notifications.mu.Lock()
	defer sh.notifications.mu.Unlock()
	sh.missing, sh.any = map[uint16]bool{}, false
	clear(sh.unanswered)
	for _, slot := range slots {
		sh.missing[slot] = true
	}
}

// review returns the slots to subscribe to, mostly again, and those to unsubscribe from. A slot whose
// node has been silent is heard no more, until the node answers.
func (sh *slotSubscriptions) review() (used, idle []uint16) {
	inUse := sh.notifications.slotsInUse()
	sh.notifications.mu.Lock()
	defer sh.notifications.mu.Unlock()
	for slot, since := range sh.wanted {
		if inUse[slot] || time.Since(since) < subscriptionIdle {
			used = append(used, slot)
			if sh.unanswered[slot]++; sh.unanswered[slot] > maxMissed && sh.heard[slot].Swap(false) {
				sh.missing[slot], sh.any = true, false
			}
		} else {
			delete(sh.wanted, slot)
			delete(sh.unanswered, slot)
			delete(sh.missing, slot)
			idle = append(idle, slot)
		}
	}
	return used, idle
}

// slotsInUse are the slots in which clients wait here, or have session locks.
func (w *Notifications) slotsInUse() map[uint16]bool {
	used := map[uint16]bool{}
	for _, line := range w.queues.Lines() {
		used[keyname.SlotOf([]byte(line.Key))] = true
	}
	for _, lock := range w.sessions.All() {
		used[keyname.SlotOf([]byte(lock.Key))] = true
	}
	return used
}

// listeners receive what other proxies say on a cluster's channels for deadlocks, as one user.
type listeners struct {
	as  *names.Identity // nil if there are none
	end func()
}

// listenToAllWaits begins to listen to these channels, each on a connection of its own.
func (w *Notifications) listenToAllWaits(ctx context.Context, as names.Identity) listeners {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, channel := range w.deadlocks.Channels() {
		running.Go(func() { w.listenToWaits(ctx, as, channel) }) // ends with ctx
	}
	return listeners{&as, func() { cancel(); running.Wait() }}
}

// maxRefusedRetry is how long it waits at most before it asks again for a channel that the user may
// not use.
const maxRefusedRetry = 30 * time.Second

// listenToWaits receives what other proxies say on one of a cluster's channels, until ctx ends. A
// user who may not do that can be given the right later.
func (w *Notifications) listenToWaits(
	ctx context.Context, as names.Identity, channel string,
) {
	loopguard.MayWait()
	for failures, refusals := 0, 0; ctx.Err() == nil; {
		began := time.Now()
		err := w.receiveWaits(ctx, as, channel)
		if redis.HasErrorPrefix(err, "unknown command") {
			return
		}
		if denied, invalid := isRefused(err); denied || invalid {
			refusals++
			pauseAfter(ctx, 1+refusals, refusedRetry, maxRefusedRetry)
			continue
		}
		if failures++; time.Since(began) >= subscriptionLasts {
			failures, refusals = 0, 0
		}
		pauseAfter(ctx, failures, minListenRetry, maxListenRetry)
	}
}

// receiveWaits receives messages on a new connection until that fails.
func (w *Notifications) receiveWaits(
	ctx context.Context, as names.Identity, channel string,
) (err error) {
	sub := w.Clients.Client(as).Subscribe(ctx)
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { sub.Close() }) // Receive ignores the end of its ctx
	defer stop()
	connecting, connected := context.WithTimeout(ctx, w.Clients.Patience())
	err = sub.SSubscribe(connecting, channel)
	connected()
	for err == nil {
		var message any
		message, err = sub.Receive(neverConnect)
		switch m := message.(type) {
		case *redis.Message:
			w.deadlocks.OnMessage(m.Payload)
		case *redis.Subscription:
			if m.Kind != "ssubscribe" {
				return nil // its slot has moved
			}
		}
	}
	return err
}
