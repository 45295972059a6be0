package search

import (
	"encoding/json"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/deadlock"
)

// Question is what a message asks for, if it is a question.
func Question(payload string) (id, proxy string, is bool) {
	var m message
	if len(payload) < len(version) || json.Unmarshal([]byte(payload[len(version):]), &m) != nil {
		return "", "", false
	}
	return m.ID, m.Proxy, !m.Answer
}

var forgers logins

// Forge is an answer to a question, as who knows a login can make it.
func Forge(as names.Identity, id string, w deadlock.Wait) string {
	plain, _ := json.Marshal(w)
	forger, _ := forgers.of(as)
	m := message{ID: id, Proxy: w.Proxy, Answer: true}
	m.By, m.Sealed = forger.sealed(plain, m.about())
	text, _ := json.Marshal(m)
	return version + string(text)
}
