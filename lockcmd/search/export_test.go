package search

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/deadlock"
)

// jobs are those in the background, which a test runs itself.
type jobs struct {
	mu         sync.Mutex
	now, later []func(context.Context) // guarded by mu
}

func (j *jobs) after(pause time.Duration, job func(context.Context)) (cancel func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if pause == 0 {
		j.now = append(j.now, job)
	} else {
		j.later = append(j.later, job)
	}
	return nil
}

// run runs those that are due. pass has those be due that are so after a pause.
func (j *jobs) run() {
	list := j.now
	j.now = nil
	for _, job := range list {
		job(context.Background())
	}
}

func (j *jobs) pass() {
	list := j.later
	j.later = nil
	for _, job := range list {
		job(context.Background())
	}
	j.run()
}

// TellerOf is the proxy of a message.
func TellerOf(payload string) string {
	var m message
	if len(payload) < len(version) || json.Unmarshal([]byte(payload[len(version):]), &m) != nil {
		return ""
	}
	return m.Proxy
}

var forgers = logins{after: new(jobs).after}

// Forge is what who knows a login can make of a wait, as the answer to all questions of a proxy.
func Forge(as names.Identity, to string, w deadlock.Wait) string {
	return forge(as, to, w.Proxy, time.Now().UnixNano(), w)
}

func forge(as names.Identity, to, from string, number int64, list ...deadlock.Wait) string {
	plain, _ := json.Marshal(telling{Number: number, Waits: list,
		Answers: map[string]int64{to: math.MaxInt64 - 1}})
	return forgeText(as, from, plain)
}

func forgeText(as names.Identity, from string, plain []byte) string {
	forger := forgers.of(as)
	m := message{Proxy: from}
	m.By, m.Sealed = forger.sealed(plain, m.Proxy)
	text, _ := json.Marshal(m)
	return version + string(text)
}
