package cluster

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// outdatedAfter is how long nodes with an older epoch are ignored after a node had the newest. A
// master that comes back believes that it still is one until others tell it that it was replaced,
// which takes a second or two.
const outdatedAfter = 10 * time.Second

// Cluster knows the map of a Redis Cluster. It is safe for concurrent use.
type Cluster struct {
	seeds []string // host:port
	slots atomic.Pointer[slotMap]
	held  atomic.Int64 // see maxHeld
	// replaced is called before a map is used in which a replica has become a master; nil for none.
	replaced atomic.Pointer[func(master string)]
	channels atomic.Pointer[string] // see nodeSet.channelNode; nil if no map has come yet
	own      atomic.Pointer[asker]  // how Follow asks; nil unless its last try was answered

	mu         sync.Mutex          // guards what follows
	conns      map[*Conn]bool      // the open ones
	refreshing bool                // a refresh is under way
	refreshed  time.Time           // when the last refresh began
	members    map[member]int64    // the open connections, and their numbers; 0 if not known
	shown      map[*Conn]clientRef // whose number is the Conn's
	telling    int                 // maps that Conns are being told of
	copying    map[*Conn]bool      // those that copy their subscriptions to the next of channels
	epoch      int64               // of slots
	current    time.Time           // when a node last knew that epoch, or a newer one
}

// New returns a Cluster that is found by its seeds, host:port. It asks them nothing yet.
func New(seeds []string) *Cluster {
	return &Cluster{seeds: seeds, conns: map[*Conn]bool{}, members: map[member]int64{},
		shown: map[*Conn]clientRef{}, copying: map[*Conn]bool{}}
}

// String names the cluster by its seeds.
func (cl *Cluster) String() string { return strings.Join(cl.seeds, ",") }

// Known reports whether the nodes and their slots are known.
func (cl *Cluster) Known() bool { return cl.slots.Load() != nil }

// Masters returns how many nodes serve slots, and whether all slots are served, as far as is known.
func (cl *Cluster) Masters() (masters int, whole bool) {
	m := cl.slots.Load()
	if m == nil {
		return 0, false
	}
	return len(m.masters), m.whole()
}

// Hostname is what the node at addr announces as its name next to its address; "" if that is not
// known.
func (cl *Cluster) Hostname(addr string) string {
	if m := cl.slots.Load(); m != nil {
		return m.hostnames[addr]
	}
	return ""
}

// OnReplaced sets f, which is called when a replica has become a master, before the new map sends
// requests to it. A redirection may have sent some requests to it earlier. f must not block.
func (cl *Cluster) OnReplaced(f func(master string)) { cl.replaced.Store(&f) }

func (cl *Cluster) reportReplaced(old, m *slotMap) {
	f := cl.replaced.Load()
	if f == nil || old == nil {
		return
	}
	for _, master := range m.promoted(old) {
		(*f)(master)
	}
}

// candidates is the nodes that a Conn can begin at, in random order: the masters if they are known,
// otherwise the seeds.
func (cl *Cluster) candidates() []string {
	addrs := cl.seeds
	if m := cl.slots.Load(); m != nil {
		addrs = m.masters
	}
	addrs = slices.Clone(addrs)
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs
}

func (cl *Cluster) add(c *Conn) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.conns[c] = true
}

func (cl *Cluster) remove(c *Conn) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	delete(cl.conns, c)
	delete(cl.copying, c)
	delete(cl.shown, c)
	cl.moveChannels()
}

// copies records that c has begun to copy its subscriptions, or has ended.
func (cl *Cluster) copies(c *Conn, begun bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if delete(cl.copying, c); begun {
		cl.copying[c] = true
	}
	cl.moveChannels()
}

// moveChannels makes the master with the lowest slot the node of all channels, once it has copies of
// all subscriptions or the old one is no master any more. mu is held.
func (cl *Cluster) moveChannels() {
	m, old := cl.slots.Load(), cl.channels.Load()
	if m == nil || cl.telling > 0 ||
		old != nil && slices.Contains(m.masters, *old) && len(cl.copying) > 0 {
		return
	}
	if old == nil || *old != m.masters[0] {
		cl.channels.Store(&m.masters[0])
	}
}

// slotMoved records a MOVED and returns the map with it. It is nil as long as none is known: one
// slot says too little.
func (cl *Cluster) slotMoved(slot int, addr string) *slotMap {
	for {
		m := cl.slots.Load()
		if m == nil || m.master(slot) == addr {
			return m
		}
		changed := m.with(slot, addr)
		cl.reportReplaced(m, changed)
		if cl.slots.CompareAndSwap(m, changed) {
			return changed
		}
	}
}

// update replaces the map by that of a node, which knows this epoch, and tells the Conns. ok is
// false, and nothing changes, if the node is outdated.
func (cl *Cluster) update(m *slotMap, epoch int64, now time.Time) (ok bool) {
	cl.mu.Lock()
	if epoch < cl.epoch && now.Sub(cl.current) < outdatedAfter {
		cl.mu.Unlock()
		return false
	}
	cl.epoch, cl.current = epoch, now
	if old := cl.slots.Load(); old == nil || !old.equal(m) {
		cl.reportReplaced(old, m)
		cl.slots.Store(m)
	}
	conns := slices.Collect(maps.Keys(cl.conns))
	cl.telling++
	cl.mu.Unlock()
	for _, c := range conns {
		c.mapChanged()
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.telling--
	cl.moveChannels()
	return true
}
