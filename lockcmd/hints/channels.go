package hints

import (
	"maps"
	"slices"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/keyname"
)

// channel is one that the subscriber subscribes to. It is for the locks in a place: there is one
// place for all, or in a cluster one for each slot, whose sharded channel is at the node that has
// these locks. On channels at places below 0 proxies tell who waits.
type channel struct {
	name   string
	wanted time.Time // when a waiter or session last came
}

// channelIdle is how long a channel is kept that nobody needs.
const channelIdle = 30 * time.Second

// place is where a lock is.
func (l *Listener) place(key string) int {
	if !l.sharded.Load() {
		return 0
	}
	return int(keyname.SlotOf([]byte(key)))
}

// placeOf is the place of a channel.
func (l *Listener) placeOf(channel string) int {
	if i := slices.Index(l.waits, channel); i >= 0 {
		return -1 - i
	}
	return l.place(channel)
}

// Listen subscribes to messages about a lock, unless the proxy is subscribed. It may do so as a
// waiter's user.
func (l *Listener) Listen(as names.Identity, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.connLocked(as) != nil
	l.wantPlaceLocked(l.place(key))
	if l.chooseLocked(); l.subscriber == nil && !known {
		l.tellLocked("more logins have locks than are asked to subscribe, and none may", maxConns)
	}
}

// wantPlaceLocked subscribes to the channel of a place. mu is held.
func (l *Listener) wantPlaceLocked(place int) {
	if ch := l.channels[place]; ch != nil {
		ch.wanted = time.Now()
		return
	}
	if len(l.channels) == 0 {
		for i, name := range l.waits {
			l.channels[-1-i] = &channel{name: name}
		}
	}
	name := keyname.NotifyChannel + l.Scripts.Proxy
	if l.sharded.Load() {
		name = keyname.SlotChannel(uint16(place), l.Scripts.Proxy)
	}
	l.channels[place] = &channel{name, time.Now()}
	if s := l.subscriber; s != nil {
		s.subscribeLocked(place, false)
	}
}

// chooseLocked has one user subscribe if none does, as the messages are for the proxy, whoever
// waits: one who was not refused, with a connection if possible. mu is held.
func (l *Listener) chooseLocked() {
	if l.subscriber != nil || len(l.channels) == 0 {
		return
	}
	for _, c := range l.conns {
		if time.Since(c.deaf) >= channelsRetry && (l.subscriber == nil || c.serving) {
			l.subscriber = c
		}
	}
	if s := l.subscriber; s != nil {
		s.startLocked()
		s.subscribeAllLocked()
		l.hearApartLocked(s.as)
	}
}

// hearApartLocked has the channels at places below 0 of a cluster heard apart. mu is held.
func (l *Listener) hearApartLocked(as names.Identity) {
	for i := 0; l.sharded.Load() && i < len(l.waits); i++ {
		c := l.apart[-1-i]
		if c == nil || !c.serving || c.as != as {
			c = &conn{l: l, as: as, apart: -1 - i, more: make(chan struct{}, 1)}
			l.apart[-1-i] = c
		}
		c.startLocked()
	}
}

// hearNothingLocked notes that no messages come. mu is held.
func (l *Listener) hearNothingLocked() {
	for i := range l.heard {
		l.heard[i].Store(false)
	}
}

// placesInUse are those of the locks for which clients wait here, or that sessions have.
func (l *Listener) placesInUse() map[int]bool {
	used := map[int]bool{}
	if !l.sharded.Load() {
		used[0] = l.queues.Waiting() || l.sessions.AnySession()
		return used
	}
	for _, line := range l.queues.Lines() {
		used[l.place(line.Key)] = true
	}
	for _, lock := range l.sessions.All() {
		used[l.place(lock.Key)] = true
	}
	return used
}

// reviewLocked ends subscriptions that nobody needs, and repeats the others: at a master that has
// become a replica they still bring messages, but SPUBLISH does not count them, and a user may have
// been given the right to a channel. mu is held, and c is the subscriber.
func (c *conn) reviewLocked(used map[int]bool) {
	l := c.l
	if c.apart != 0 {
		if l.channels[c.apart] != nil {
			c.subscribeLocked(c.apart, false)
		}
		return
	}
	needed := func(place int) bool {
		return place >= 0 && (used[place] || time.Since(l.channels[place].wanted) < channelIdle)
	}
	places := slices.Collect(maps.Keys(l.channels))
	some := slices.ContainsFunc(places, needed)
	for _, place := range places {
		if some && place < 0 || needed(place) {
			c.subscribeLocked(place, false)
			continue
		}
		if place >= 0 {
			l.heard[place].Store(false)
		}
		if name := l.channels[place].name; place >= 0 || !l.sharded.Load() {
			c.askLocked(request{kind: endsChannel, name: name}, l.verb("UNSUBSCRIBE"), name)
		}
		delete(l.channels, place)
	}
	if !some {
		l.subscriber = nil
		maps.DeleteFunc(l.conns, func(_ names.Identity, c *conn) bool { return !c.serving })
	}
}

// verb is the name of a command about channels.
func (l *Listener) verb(plain string) string {
	if l.sharded.Load() {
		return "S" + plain
	}
	return plain
}

// subscribeLocked asks for the channel of a place. mu is held.
func (c *conn) subscribeLocked(place int, verifies bool) {
	name := c.l.channels[place].name
	if place < 0 && c.apart != place && c.l.sharded.Load() {
		return
	}
	c.askLocked(request{asksChannel, name, verifies}, c.l.verb("SUBSCRIBE"), name)
}

// subscribeAllLocked asks for all channels, one by one, as they are in different slots. Session
// locks are verified behind the first and the last of locks: messages may have been missed. mu is
// held.
func (c *conn) subscribeAllLocked() {
	places := slices.Sorted(maps.Keys(c.l.channels))
	for i, place := range places {
		c.subscribeLocked(place, i == len(c.l.waits) || i == len(places)-1)
	}
}

// confirmed notes that a subscription has been made or has ended. One that ends unasked is made
// again: its slot has moved.
func (c *conn) confirmed(name string, made bool) {
	kind := endsChannel
	if made {
		kind = asksChannel
	}
	l := c.l
	l.mu.Lock()
	r := request{}
	if len(c.owed) > 0 && c.owed[0].kind == kind && c.owed[0].name == name {
		r = c.takeLocked()
	}
	place := l.placeOf(name)
	if (l.subscriber == c || c.apart != 0) && l.channels[place] != nil {
		if place >= 0 {
			l.heard[place].Store(made)
		}
		if !made && r.name == "" {
			c.subscribeLocked(place, true)
		}
	}
	l.mu.Unlock()
	if r.verifies {
		l.sessions.VerifyAll(held.LostElsewhere)
	}
}
