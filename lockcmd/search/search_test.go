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

// ask has other proxies ask for owners n times, each time anew, as a login; "" is one that this
// proxy does not know. It returns how many answers are given.
func (d *Deadlocks) ask(n int, user string, owners ...string) (answers int) {
	m := message{Proxy: "q"}
	for _, owner := range owners {
		m.Owners = append(m.Owners, hash("owner", owner))
	}
	known := logins{}
	before := d.answers.total()
	for i := range n {
		m.ID = fmt.Sprint(user, "q-", i)
		by, _ := known.of(names.Identity{User: user})
		m.By, m.Sealed = by.sealed([]byte("[]"), m.about())
		text, _ := json.Marshal(m)
		d.OnMessage(version + string(text))
		d.answering.Store(0) // as if they were answered at once
	}
	return d.answers.total() - before
}

func (b *budget) total() (n int) {
	for _, spent := range b.spent {
		n += spent
	}
	return n
}

// However many questions come, few are answered within a second. Those of logins that are not known
// here leave those of others their share.
func TestAnswersAreBounded(t *testing.T) {
	d := newTestDeadlocks()
	d.waits("anna", "k")
	defer func(now func() time.Time) { clock = now }(clock)
	now := clock()
	clock = func() time.Time { return now }
	if n := d.ask(10*maxAnswers, "mallory", "anna"); n != maxAnswers {
		t.Errorf("%d answers to a login that is not known", n)
	}
	if n := d.ask(1, "mallory2", "anna"); n != 0 {
		t.Errorf("%d answers to another one", n)
	}
	if n := d.ask(10*maxAnswers, "", "anna"); n != maxAnswers {
		t.Errorf("%d answers to a login that is known", n)
	}
	if n := d.ask(1, "", "ben"); n != 0 {
		t.Errorf("%d answers about somebody who does not wait", n)
	}
}

// The proxy reads no message but questions and answers of this version.
func TestStrangeMessages(t *testing.T) {
	d := newTestDeadlocks()
	d.waits("anna", "k")
	id, answers := d.expectAnswers()
	wait := deadlock.Wait{ID: "q-1/1", Proxy: "q", Owner: "anna"}
	claims := func(payload string) int {
		d.OnMessage(payload)
		n := len(answers)
		for range n {
			<-answers
		}
		return n
	}
	if claims(Forge(names.Identity{}, id, wait)) != 1 {
		t.Error("an answer is not taken")
	}
	other := func(change func(*deadlock.Wait)) string {
		w := wait
		change(&w)
		return Forge(names.Identity{}, id, w)
	}
	for name, payload := range map[string]string{
		"empty": "", "version alone": version,
		"earlier version": `{"ID":"` + id + `","Waits":[{"ID":"x"}]}`,
		"not JSON":        version + "x", "too long": version + strings.Repeat(" ", maxMessage) + "{}",
		"another question":  Forge(names.Identity{}, id+"1", wait),
		"a login not known": Forge(names.Identity{User: "mallory"}, id, wait),
		"another password":  Forge(names.Identity{Password: "x", LoggedIn: true}, id, wait),
		"of this proxy":     other(func(w *deadlock.Wait) { w.Proxy = "p" }),
		"a wait of another": other(func(w *deadlock.Wait) { w.ID = "p-1/1" }),
		"too many keys": other(func(w *deadlock.Wait) {
			w.Keys = make([]deadlock.KeyWait, maxSearch+1)
		}),
		"seal of another":     strings.Replace(Forge(names.Identity{}, id, wait), `"q"`, `"r"`, 1),
		"as a question":       strings.Replace(Forge(names.Identity{}, id, wait), "true", "false", 1),
		"numbers for strings": version + `{"ID":1,"Owners":[2]}`,
	} {
		if n := claims(payload); n != 0 {
			t.Errorf("%s: %d claims", name, n)
		}
	}
	by, _ := forgers.of(names.Identity{})
	m := message{ID: id, Proxy: "q", Answer: true}
	m.By, m.Sealed = by.sealed([]byte(`{"ID":"q-1/1","Proxy":"q","Owner":"anna","Keys":5}`), m.about())
	if text, _ := json.Marshal(m); claims(version+string(text)) != 0 {
		t.Error("a wait that can be read only in part is taken")
	}
	for range 2 * answersQueued { // nobody reads them
		d.OnMessage(Forge(names.Identity{}, id, wait))
	}
	if len(answers) != answersQueued {
		t.Errorf("%d claims wait", len(answers))
	}
}

// A search hears each claim once, and of no more keys, waits and databases than it is allowed to.
func TestClaimsAreBounded(t *testing.T) {
	d := newTestDeadlocks()
	claimOf := func(i, db int) claim {
		return claim{names.Identity{DB: db}, deadlock.Wait{ID: fmt.Sprint("q-", i), Proxy: "q", DB: db,
			Keys: []deadlock.KeyWait{{Key: deadlock.Binary(fmt.Sprint(i))}}}}
	}
	l := d.newSearch(nil, d.registered)
	for i := range maxSearch + 1 {
		l.believe(claimOf(i, 0), nil)
		l.believe(claimOf(i, 0), nil) // it comes by several channels
	}
	if len(l.graph) != maxSearch || len(l.claims) != maxSearch {
		t.Errorf("%d waits of %d claims", len(l.graph), len(l.claims))
	}
	l = d.newSearch(nil, d.registered)
	for i := range maxSearch + 1 {
		c := claimOf(i, 0)
		c.wait.Keys = nil
		l.believe(c, nil)
	}
	if len(l.claims) != maxSearch {
		t.Errorf("%d claims about no lock", len(l.claims))
	}
	l = d.newSearch(nil, d.registered)
	for db := range maxDatabases + 1 {
		l.believe(claimOf(db, db), nil)
	}
	if len(l.graph) != maxDatabases {
		t.Errorf("of %d databases", len(l.graph))
	}
	l = d.newSearch(nil, d.registered)
	for i := range 3 {
		c := claimOf(i, 0)
		for len(c.wait.Keys) < maxSearch/2 {
			c.wait.Keys = append(c.wait.Keys, c.wait.Keys[0])
		}
		l.believe(c, nil)
	}
	if n := len(locksOf(l.claims)); n != maxSearch {
		t.Errorf("the records of %d keys are read", n)
	}
}

// An owner, or the wait at a place, is asked for once, however many wait for it. Otherwise few would
// fill a question.
func TestEachPartyIsAskedForOnce(t *testing.T) {
	l := newTestDeadlocks().newSearch(nil, nil)
	place := deadlock.Place{Proxy: "q", Key: "k"}
	for i := range 3 {
		l.add(deadlock.Wait{ID: fmt.Sprint("q-", i), Proxy: "q", Keys: []deadlock.KeyWait{{Key: "k",
			Holders: []deadlock.Holder{{Owner: "anna"}}}}})
		l.want(place)
	}
	if len(l.owners) != 1 || len(l.places) != 1 {
		t.Errorf("%q and %v are asked for", l.owners, l.places)
	}
}

// The seals of logins differ by user and password, and few are remembered. A user without a name is
// the default one.
func TestSealsOfLogins(t *testing.T) {
	l := logins{}
	as := []names.Identity{{}, {User: "a"}, {User: "a", Password: "p", LoggedIn: true},
		{User: "a", Password: "q", LoggedIn: true}}
	ids := map[string]bool{}
	for _, as := range as {
		one, _ := l.of(as)
		id, text := one.sealed([]byte("secret"), "about")
		ids[id] = true
		if plain, by, _ := l.open(id, text, "about"); string(plain) != "secret" || by != l.loginOf(as) {
			t.Errorf("%v: %q, by %v", as, plain, by)
		}
		if plain, _, _ := l.open(id, text, "other"); plain != nil {
			t.Errorf("%v: it is about something else", as)
		}
	}
	if len(ids) != len(as) {
		t.Errorf("%d seals of %d logins", len(ids), len(as))
	}
	a, _ := l.of(names.Identity{User: "default", DB: 3, Proto: 3})
	if b, _ := l.of(names.Identity{}); a != b {
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
	id, answers := d.expectAnswers()
	as := names.Identity{User: "anna", Password: "secret", LoggedIn: true}
	one, derive := d.logins.of(as)
	if _, again := d.logins.of(as); !derive || again {
		t.Error("its key is not derived once")
	}
	answer := Forge(as, id, deadlock.Wait{ID: "q-1/1", Proxy: "q", Owner: "anna"})
	if d.OnMessage(answer); len(answers) != 0 || one.derived.Load() {
		t.Errorf("the receiver has derived the key, %d answers", len(answers))
	}
	d.logins.deriveAll(t.Context())
	if d.OnMessage(answer); len(answers) != 1 {
		t.Errorf("%d answers", len(answers))
	}
	if _, derive := d.logins.of(as); derive {
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
	here := logins{inUse: func(as names.Identity) names.Identity {
		if as == own("old") {
			as = own(inUse)
		}
		return as
	}}
	var before, later logins // of proxies that have started with the old and the new password
	sent := func(from *logins, as names.Identity) (string, []byte) {
		one, _ := from.of(as)
		return one.sealed([]byte("secret"), "about")
	}
	reads := func(at *logins, id string, text []byte) bool {
		plain, _, _ := at.open(id, text, "about")
		return plain != nil
	}
	oldID, oldText := sent(&before, own("old"))
	newID, newText := sent(&later, own("new"))
	sent(&here, own("old"))
	if !reads(&here, oldID, oldText) || reads(&here, newID, newText) {
		t.Error("it does not read what is sealed by the old password alone")
	}
	here.deriveAll(t.Context())
	inUse = "new"
	if _, _, derive := here.open(newID, newText, "about"); !derive {
		t.Error("its key is not derived")
	}
	if here.deriveAll(t.Context()); reads(&here, oldID, oldText) || !reads(&here, newID, newText) {
		t.Error("it does not read what is sealed by the new password alone")
	}
	if id, text := sent(&here, own("old")); !reads(&later, id, text) {
		t.Error("others do not read what it seals")
	}
}

// A question counts as a login's only with the owners that the login has asked for. Others that
// somebody puts in their place are answered as questions of logins that are not known.
func TestOwnersAreSealed(t *testing.T) {
	d := newTestDeadlocks()
	d.waits("anna", "k")
	d.waits("ben", "l")
	by, _ := d.logins.of(names.Identity{})
	question := message{ID: "q-1", Proxy: "q", Owners: []string{hash("owner", "anna")}}
	question.By, question.Sealed = by.sealed([]byte("[]"), question.about())
	other := question
	other.Owners = []string{hash("owner", "ben")}
	for _, m := range []message{other, question} { // each is answered, whichever comes first
		text, _ := json.Marshal(m)
		d.OnMessage(version + string(text))
	}
	if known, unknown := d.answers.spent[question.By], d.answers.spent[""]; known != 1 || unknown != 1 {
		t.Errorf("%d answers to the login, %d to others", known, unknown)
	}
}

// However many passwords let a client in as one user, the proxy remembers few of them, and derives
// one key a second. That keeps nobody else from being known.
func TestKeysOfOneUserTakeLittle(t *testing.T) {
	defer func(now func() time.Time) { clock = now }(clock)
	now := time.Now()
	clock = func() time.Time { return now }
	l := logins{}
	as := func(user string, i int) names.Identity {
		return names.Identity{User: user, Password: fmt.Sprint(i), LoggedIn: true}
	}
	anna, _ := l.of(as("anna", 0))
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
	again := l.deriveAll(t.Context())
	if len(l.list) != 1+maxOfUser || !anna.derived.Load() || derived() != 2 || again != deriveAgain {
		t.Errorf("%d logins, %d keys are derived, the next one in %v", len(l.list), derived(), again)
	}
	if _, derive := l.of(as("guest", 0)); derive {
		t.Error("a second one derives keys")
	}
	now = now.Add(deriveAgain)
	if again := l.deriveAll(t.Context()); derived() != 3 || again != deriveAgain {
		t.Errorf("a second later %d keys are derived, the next one in %v", derived(), again)
	}
}
