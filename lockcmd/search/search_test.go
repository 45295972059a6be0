package search

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// newTestDeadlocks are those of a proxy called p, whose jobs never run.
func newTestDeadlocks() *Deadlocks {
	jobs := &background.Jobs{Timers: background.NewTimers(), Clients: background.NewClients(nil, false),
		Scripts: script.NewMaker(script.Config{Proxy: "p"})}
	jobs.Timers.Close()
	return New(jobs, Refuse, queue.New(&background.Ways{}), held.NewRegistry(func(*held.Lock) {}), nil,
		nil)
}

// waits has an owner wait for a key.
func (d *Deadlocks) waits(owner, key string) (end func()) {
	d.last++
	w, _ := d.queues.Join(script.Request{Key: key, Owner: owner, Number: "1",
		Connection: fmt.Sprint("p-", d.last)}, names.Identity{}, 0, time.Now())
	return d.Watch(w.Wait)
}

// A wait is searched unless its key or its owner is longer than 1,024 bytes, each alone.
func TestLongNamesAreNotSearched(t *testing.T) {
	at, longer := strings.Repeat("x", maxWaitName), strings.Repeat("x", maxWaitName+1)
	for _, c := range []struct {
		owner, key string
		want       int
	}{{at, at, 1}, {longer, "k", 0}, {"o", longer, 0}, {longer, longer, 0}, {"", "k", 0}} {
		d := newTestDeadlocks()
		end := d.waits(c.owner, c.key)
		if len(d.of) != c.want {
			t.Errorf("owner of %d, key of %d bytes: %d are searched", len(c.owner), len(c.key), len(d.of))
		}
		if end(); len(d.of) != 0 {
			t.Error("it is searched when it has ended")
		}
	}
}

// However often other proxies ask for the waits of logins, as few of them are told as without, and
// those that are due are told as well.
func TestTellingsAreBounded(t *testing.T) {
	defer func(now func() time.Time) { clock = now }(clock)
	now := time.Now()
	clock = func() time.Time { return now }
	d := newTestDeadlocks()
	for i := range 2 * maxSearch {
		d.waits(fmt.Sprint("owner", i), fmt.Sprint(i))
	}
	if tell, _, _ := d.due(now); len(tell) != 0 {
		t.Errorf("%d waits are told that have begun just now", len(tell))
	}
	ask := func(as names.Identity, from string, number int64) {
		for i := range 2 {
			t := telling{Number: number}
			for j := range maxSearch {
				t.Again = append(t.Again, fmt.Sprintf("p-%d/1", 1+i*maxSearch+j))
			}
			plain, _ := json.Marshal(t)
			d.OnMessage(forgeText(as, from, plain))
		}
	}
	ask(names.Identity{User: "mallory"}, "q", 6)
	if tell, _, _ := d.due(now); len(tell) != 0 {
		t.Errorf("%d waits are told to a login that is not theirs", len(tell))
	}
	for range 10 {
		ask(names.Identity{}, "q", 7)
	}
	login := d.logins.loginOf(names.Identity{})
	tell, due, asked := d.due(now)
	if len(tell) != maxSearch || len(due) != 0 || asked[login].answers["q"] != 7 {
		t.Errorf("%d waits are told, %d searched from, %v", len(tell), len(due), asked[login])
	}
	if tell, _, asked := d.due(now); len(tell) != 0 || len(asked) != 0 {
		t.Errorf("%d waits are told twice", len(tell))
	}
	if tell, due, _ := d.due(now.Add(firstSearch)); len(tell) != maxSearch || len(due) != maxSearch {
		t.Errorf("%d waits are told when they are due, %d searched from", len(tell), len(due))
	}
	ask(names.Identity{}, "q", 8)
	if tell, due, _ := d.due(now.Add(firstSearch)); len(tell) != 2*maxSearch || len(due) != maxSearch {
		t.Errorf("%d waits are told, %d searched from", len(tell), len(due))
	}
	for i := range 2 * maxAsking {
		ask(names.Identity{}, fmt.Sprint("q", i), 9)
	}
	if _, _, asked := d.due(now); len(asked[login].answers) > maxAsking || len(asked[login].ids) > maxAsked {
		t.Errorf("%d proxies are answered, about %d waits", len(asked[login].answers),
			len(asked[login].ids))
	}
}

// The proxy reads no message but those of this version, by logins that it knows, about waits at the
// proxy that tells of them.
func TestStrangeMessages(t *testing.T) {
	d := newTestDeadlocks()
	d.waits("anna", "k")
	wait := deadlock.Wait{ID: "q-1/1", Proxy: "q", Owner: "anna", Keys: []deadlock.KeyWait{{Key: "k"}}}
	heard := func(payload string) int {
		d.told = newTold()
		d.OnMessage(payload)
		return len(d.told.waits)
	}
	if heard(Forge(names.Identity{}, "p", wait)) != 1 {
		t.Error("a message is not read")
	}
	other := func(change func(*deadlock.Wait)) string {
		w := wait
		change(&w)
		return Forge(names.Identity{}, "p", w)
	}
	long := strings.Repeat("x", maxWaitName+1)
	for name, payload := range map[string]string{
		"empty": "", "version alone": version,
		"earlier version": `{"Proxy":"q","Waits":[{"ID":"x"}]}`,
		"not JSON":        version + "x", "too long": version + strings.Repeat(" ", maxMessage) + "{}",
		"a login not known": Forge(names.Identity{User: "mallory"}, "p", wait),
		"another password":  Forge(names.Identity{Password: "x", LoggedIn: true}, "p", wait),
		"of this proxy":     other(func(w *deadlock.Wait) { w.Proxy = "p" }),
		"a wait of another": other(func(w *deadlock.Wait) { w.ID = "p-1/1" }),
		"a long owner":      other(func(w *deadlock.Wait) { w.Owner = deadlock.Binary(long) }),
		"a long key": other(func(w *deadlock.Wait) {
			w.Keys = []deadlock.KeyWait{{Key: deadlock.Binary(long)}}
		}),
		"many places": other(func(w *deadlock.Wait) {
			w.Keys = []deadlock.KeyWait{{Key: "k", As: make([]string, maxNames+1)}}
		}),
		"no key": other(func(w *deadlock.Wait) { w.Keys = nil }),
		"too many keys": other(func(w *deadlock.Wait) {
			w.Keys = make([]deadlock.KeyWait, maxSearch+1)
		}),
		"seal of another":     strings.Replace(Forge(names.Identity{}, "p", wait), `"q"`, `"r"`, 1),
		"numbers for strings": version + `{"Proxy":"q","By":1,"Sealed":[2]}`,
		"sealed, not JSON":    forgeText(names.Identity{}, "q", []byte("x")),
		"sealed, empty":       forgeText(names.Identity{}, "q", nil),
		"readable in part": forgeText(names.Identity{}, "q",
			[]byte(`{"Waits":[{"ID":"q-1/1","Keys":[{"Key":""}]},{"ID":"q-1/2","Keys":5}]}`)),
	} {
		if n := heard(payload); n != 0 {
			t.Errorf("%s: %d waits", name, n)
		}
	}
}

// Waits that others tell are remembered for as long as they count, each once, by the latest
// message, and within a bound for each login.
func TestToldWaitsAreBounded(t *testing.T) {
	defer func(now func() time.Time) { clock = now }(clock)
	now := time.Now()
	clock = func() time.Time { return now }
	d := newTestDeadlocks()
	d.waits("anna", "k")
	d.logins.of(names.Identity{User: "mallory"})
	wait := func(i int, owner string) deadlock.Wait {
		return deadlock.Wait{ID: fmt.Sprint("q-", i), Proxy: "q", Owner: deadlock.Binary(owner),
			Keys: []deadlock.KeyWait{{}}}
	}
	first, later := forge(names.Identity{}, "p", "q", 1, wait(0, "anna")),
		forge(names.Identity{}, "p", "q", 2, wait(0, "ben"))
	for _, text := range []string{first, later, later, first} { // they come by several channels
		d.OnMessage(text)
	}
	if len(d.toldOf(deadlock.Binary("anna"))) != 0 || len(d.toldOf(deadlock.Binary("ben"))) != 1 {
		t.Errorf("%v is told", d.told.as)
	}
	name := strings.Repeat("x", maxWaitName)
	for i := range 2 * maxTold / maxWaitName {
		d.OnMessage(forge(names.Identity{User: "mallory"}, "p", "q", 3, wait(i, name)))
	}
	if n := len(d.told.waits); n < maxTold/maxWaitName/2 || n > maxTold/maxWaitName {
		t.Errorf("%d waits of %d bytes are remembered", n, maxWaitName)
	}
	d.OnMessage(forge(names.Identity{}, "p", "q", 4, wait(1, "carl")))
	if len(d.toldOf(deadlock.Binary("ben"))) != 1 || len(d.toldOf(deadlock.Binary("carl"))) != 1 {
		t.Error("those of one login are in place of another's")
	}
	now = now.Add(toldFor)
	if n := len(d.toldOf(deadlock.Binary("carl"))); n != 0 {
		t.Errorf("%d waits that are told no more", n)
	}
	d.OnMessage(forge(names.Identity{}, "p", "q", 5, wait(2, "dora")))
	if len(d.told.waits) != 1 || len(d.told.as) != 1 || len(d.told.size) != 1 {
		t.Errorf("%d waits are remembered, as %d, of %d logins", len(d.told.waits), len(d.told.as),
			len(d.told.size))
	}
}

// A search comes to no more keys and databases than it is allowed to.
func TestSearchesAreBounded(t *testing.T) {
	d := newTestDeadlocks()
	told := func(i, db, keys int) *wait {
		w := &wait{key: fmt.Sprint(i), as: names.Identity{DB: db}}
		w.DB = db
		for k := range keys {
			w.Keys = append(w.Keys, deadlock.KeyWait{Key: deadlock.Binary(fmt.Sprint(i, "-", k))})
		}
		return w
	}
	l := d.newSearch(nil, d.registered, 0)
	for i := range maxSearch + 1 {
		l.add(told(i, 0, 1))
		l.add(told(i, 0, 1))
	}
	if l.walk(); len(l.graph) != maxSearch || len(l.records) != maxSearch {
		t.Errorf("%d waits, the records of %d locks are read", len(l.graph), len(l.records))
	}
	l = d.newSearch(nil, d.registered, 0)
	for db := range maxDatabases + 1 {
		l.add(told(db, db, 1))
	}
	if l.walk(); len(l.graph) != maxDatabases {
		t.Errorf("of %d databases", len(l.graph))
	}
	l = d.newSearch(nil, d.registered, 0)
	for i := range 3 {
		l.add(told(i, 0, maxSearch/2))
	}
	if l.walk(); len(l.records) != maxSearch {
		t.Errorf("the records of %d keys are read", len(l.records))
	}
}

// The seals of logins differ by user and password, and few are remembered. A user without a name is
// the default one.
func TestSealsOfLogins(t *testing.T) {
	l := logins{after: new(jobs).after}
	as := []names.Identity{{}, {User: "a"}, {User: "a", Password: "p", LoggedIn: true},
		{User: "a", Password: "q", LoggedIn: true}}
	ids := map[string]bool{}
	for _, as := range as {
		one := l.of(as)
		id, text := one.sealed([]byte("secret"), "about")
		ids[id] = true
		if plain, by := l.open(id, text, "about"); string(plain) != "secret" || by != l.loginOf(as) {
			t.Errorf("%v: %q, by %v", as, plain, by)
		}
		if plain, _ := l.open(id, text, "other"); plain != nil {
			t.Errorf("%v: it is about something else", as)
		}
	}
	if len(ids) != len(as) {
		t.Errorf("%d seals of %d logins", len(ids), len(as))
	}
	a := l.of(names.Identity{User: "default", DB: 3, Proto: 3})
	if b := l.of(names.Identity{}); a != b {
		t.Error("the default user has two seals")
	}
	first := names.Identity{}
	for i := range maxLogins + 1 {
		l.of(first) // which is used all the time
		l.of(names.Identity{User: fmt.Sprint(i)})
	}
	if len(l.list) != maxLogins || l.list[1].as != l.loginOf(first) {
		t.Errorf("%d are remembered", len(l.list))
	}
}

// A message is read at once, or not at all: it does not keep those behind it until the keys of all
// logins are derived. They are derived before long.
func TestMessagesDoNotWaitForKeys(t *testing.T) {
	d := newTestDeadlocks()
	as := names.Identity{User: "anna", Password: "secret", LoggedIn: true}
	var background jobs
	d.logins.after = background.after
	one := d.logins.of(as)
	if d.logins.of(as); len(background.now) != 1 {
		t.Error("its key is not derived once")
	}
	message := Forge(as, "p", deadlock.Wait{ID: "q-1/1", Proxy: "q", Owner: "anna",
		Keys: []deadlock.KeyWait{{Key: "k"}}})
	if d.OnMessage(message); len(d.told.waits) != 0 || one.derived.Load() {
		t.Errorf("the receiver has derived the key, %d waits", len(d.told.waits))
	}
	background.run()
	if d.OnMessage(message); len(d.told.waits) != 1 {
		t.Errorf("%d waits", len(d.told.waits))
	}
	background.pass()
	if d.logins.of(as); len(background.now)+len(background.later) != 0 {
		t.Error("its key is derived again")
	}
}

// A proxy whose password has changed reads what others seal by the new one, and believes nobody who
// knows the old one.
func TestSealFollowsThePasswordInUse(t *testing.T) {
	own := func(password string) names.Identity {
		return names.Identity{User: "app", Password: password, LoggedIn: true}
	}
	inUse := "old"
	var background jobs
	here := logins{after: background.after, inUse: func(as names.Identity) names.Identity {
		if as == own("old") {
			as = own(inUse)
		}
		return as
	}}
	// Of proxies that have started with the old and the new password.
	before, later := logins{after: new(jobs).after}, logins{after: new(jobs).after}
	sent := func(from *logins, as names.Identity) (string, []byte) {
		one := from.of(as)
		return one.sealed([]byte("secret"), "about")
	}
	reads := func(at *logins, id string, text []byte) bool {
		plain, _ := at.open(id, text, "about")
		return plain != nil
	}
	oldID, oldText := sent(&before, own("old"))
	newID, newText := sent(&later, own("new"))
	sent(&here, own("old"))
	if !reads(&here, oldID, oldText) || reads(&here, newID, newText) {
		t.Error("it does not read what is sealed by the old password alone")
	}
	background.run()
	inUse = "new"
	if reads(&here, oldID, oldText) {
		t.Error("it reads what is sealed by a password that is in use no more")
	}
	if background.pass(); reads(&here, oldID, oldText) || !reads(&here, newID, newText) {
		t.Error("it does not read what is sealed by the new password alone")
	}
	if id, text := sent(&here, own("old")); !reads(&later, id, text) {
		t.Error("others do not read what it seals")
	}
}

// However many passwords let a client in as one user, the proxy remembers few of them, and derives
// one key a second. That keeps nobody else from being known.
func TestKeysOfOneUserTakeLittle(t *testing.T) {
	var background jobs
	l := logins{after: background.after}
	as := func(user string, i int) names.Identity {
		return names.Identity{User: user, Password: fmt.Sprint(i), LoggedIn: true}
	}
	anna := l.of(as("anna", 0))
	for i := range 10 * maxLogins {
		l.of(as("guest", i))
	}
	derived := func() (n int) {
		for _, one := range l.list {
			if one.derived.Load() {
				n++
			}
		}
		return n
	}
	if background.run(); len(l.list) != 1+maxOfUser || !anna.derived.Load() || derived() > 2 {
		t.Errorf("%d logins, %d keys are derived", len(l.list), derived())
	}
	before := derived()
	if l.of(as("guest", 0)); len(background.now) != 0 {
		t.Error("a second one is derived at once")
	}
	if background.pass(); derived() != before+1 {
		t.Errorf("a second later %d keys are derived", derived())
	}
	if background.pass(); derived() != before+2 {
		t.Errorf("two seconds later %d keys are derived", derived())
	}
}

// A wait with very many names of the same place is noted once there: to forget it takes about as
// long as to note it.
func TestToldWaitsOfOnePlace(t *testing.T) {
	d := newTestDeadlocks()
	told, places := &d.told, 0
	for range 2 {
		for i := range 32 {
			w := &wait{key: fmt.Sprint(i), number: int64(len(told.waits)) + 1, at: clock(), size: 1}
			w.Keys = make([]deadlock.KeyWait, maxSearch)
			for k := range w.Keys {
				w.Keys[k].As = []string{"", "", "", ""}
			}
			told.add(w)
		}
	}
	for _, waits := range told.as {
		places += len(waits)
	}
	if places != 32 {
		t.Errorf("%d waits are noted at %d places", places, len(told.as))
	}
}
