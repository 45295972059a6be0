package search

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/deadlock"
)

// message is a question, or an answer to one. In front of its JSON is its version: proxies of
// another one do not read it, and find no deadlocks together.
type message struct {
	ID     string // of the question
	Proxy  string // the one that asks, or answers
	Answer bool
	Owners []string `json:",omitempty"` // that are asked for, by their hashes
	By     string   // the seal of Sealed
	// Sealed are the places that are asked for ([]deadlock.Place), or the wait that answers
	// (deadlock.Wait), by the login of its client.
	Sealed []byte
}

const (
	version       = "2 "
	maxAsked      = 64      // owners or places in a question
	maxMessage    = 1 << 19 // bytes of a message that is read
	maxAnswering  = 16      // questions that are answered at a time
	maxAnswers    = 256     // waits that answer the questions of one login within a second
	answersQueued = 64
)

// clock is another one in tests.
var clock = time.Now

// about is what a seal binds a message to.
func (m *message) about() string {
	return m.ID + "\n" + m.Proxy + "\n" + strconv.FormatBool(m.Answer) + "\n" +
		strings.Join(m.Owners, "\n")
}

// tell publishes a message, with what it seals as a client. Until the key of the client's login is
// derived, it asks for owners alone, and answers nothing: the next search asks again.
func (d *Deadlocks) tell(as names.Identity, m message, sealed any) {
	plain, err := json.Marshal(sealed)
	by := d.login(as)
	if err != nil || m.Answer && !by.derived.Load() {
		return // of these types, all can be marshalled
	}
	m.Proxy = d.Scripts.Proxy
	if by.derived.Load() {
		m.By, m.Sealed = by.sealed(plain, m.about())
	}
	if text, err := json.Marshal(m); err == nil {
		d.publish(as, version+string(text))
	}
}

// claim is what a login says of a wait at another proxy. It counts only as far as that login may
// see it: see vouched.
type claim struct {
	as   names.Identity // in the database of the wait
	wait deadlock.Wait
}

// expectAnswers returns the id for a question, and the channel of its answers.
func (d *Deadlocks) expectAnswers() (id string, answers chan claim) {
	answers = make(chan claim, answersQueued)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = max(d.last+1, time.Now().UnixNano())
	id = d.Scripts.Proxy + "-" + strconv.FormatInt(d.last, 10)
	d.searches[id] = answers
	return id, answers
}

func (d *Deadlocks) forgetAnswers(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.searches, id)
}

// OnMessage answers a question, or takes an answer to one of this proxy's.
func (d *Deadlocks) OnMessage(payload string) {
	loopguard.MayWait()
	var m message
	text, is := strings.CutPrefix(payload, version)
	if d.off() || !is || len(payload) > maxMessage || json.Unmarshal([]byte(text), &m) != nil ||
		m.Proxy == d.Scripts.Proxy {
		return
	}
	if m.Answer {
		d.takeAnswer(m)
	} else {
		d.answer(m)
	}
}

func (d *Deadlocks) takeAnswer(m message) {
	d.mu.Lock()
	answers := d.searches[m.ID]
	d.mu.Unlock()
	if answers == nil || len(answers) == cap(answers) {
		return
	}
	plain, as := d.open(m)
	var w deadlock.Wait
	if json.Unmarshal(plain, &w) != nil || w.Proxy != m.Proxy ||
		!strings.HasPrefix(w.ID, w.Proxy+"-") || len(w.Keys) > maxSearch {
		return
	}
	as.DB = w.DB
	select {
	case answers <- claim{as, w}:
	default: // there are too many
	}
}

// open returns what a message seals, and the login that has sealed it, if that is known here.
func (d *Deadlocks) open(m message) (plain []byte, as names.Identity) {
	plain, as, derive := d.logins.open(m.By, m.Sealed, m.about())
	d.derive(derive)
	return plain, as
}

// answer tells the asking proxy of waits here.
func (d *Deadlocks) answer(m message) {
	if len(m.Owners) > maxAsked || d.asked.again(m.about(), string(m.Sealed)) ||
		d.answering.Load() >= maxAnswering {
		return
	}
	var places []deadlock.Place
	plain, _ := d.open(m)
	known := plain != nil
	if !known || json.Unmarshal(plain, &places) != nil || len(places) > maxAsked {
		places = nil
	}
	list := d.waitsOf(m.Owners)
	for _, at := range places {
		if at.Proxy != d.Scripts.Proxy {
			continue
		}
		if v := d.waitAt(at); v != nil {
			list = append(list, v)
		}
	}
	if !known {
		m.By = "" // those whose login is not known here share what they are answered
	}
	d.mu.Lock()
	list = list[:d.answers.take(m.By, len(list), clock())]
	d.mu.Unlock()
	if len(list) == 0 {
		return
	}
	d.answering.Add(1)
	d.Timers.After(0, func(context.Context) {
		defer d.answering.Add(-1)
		of := d.held(list)
		for _, v := range list {
			if w, ok := d.waitOf(v, of); ok {
				d.tell(v.As, message{ID: m.ID, Answer: true}, w)
			}
		}
	})
}

// budget bounds what the questions of each login cost, and those of unknown logins together.
// Deadlocks.mu guards it.
type budget struct {
	second int64
	spent  map[string]int // by the seal, "" for unknown logins
}

// take returns how many of n answers may be given now.
func (b *budget) take(by string, n int, now time.Time) int {
	if second := now.Unix(); second != b.second {
		b.second, b.spent = second, map[string]int{}
	}
	n = min(n, maxAnswers-b.spent[by])
	b.spent[by] += n
	return n
}
