package upstream

// Credentials that change while the proxy runs. What a client starts as keeps its name, Initial:
// only what new connections are sent changes.

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// secrets are the passwords in use.
type secrets struct {
	mu                           sync.Mutex
	password                     string // guarded by mu; instead of Initial's, if changed
	changed                      bool   // guarded by mu
	sentinelUser, sentinelSecret string // guarded by mu

	// refused is called when the server or a Sentinel refuses the URL's credentials, and may Renew
	// them. Set it before the first connection; nil is none.
	refused func()
	asking  sync.Mutex
	asked   time.Time // guarded by asking; when refused was called last
}

// askAgain is how often the credentials are looked for again while they are refused.
const askAgain = time.Second

// OnRefused sets what is called when the URL's credentials are refused. It may Renew them: then they
// are tried once more. It must be set before the first connection.
func (u *Upstream) OnRefused(refused func()) { u.secrets.refused = refused }

// Same reports whether another upstream differs in nothing but passwords and the Sentinels' login.
func (u *Upstream) Same(o *Upstream) bool {
	mine, its := u.Initial, o.Initial
	mine.Password, its.Password = "", ""
	same := u.Network == o.Network && u.Addr == o.Addr && mine == its &&
		(u.cluster == nil) == (o.cluster == nil) && (u.sentinels == nil) == (o.sentinels == nil)
	if same && u.sentinels != nil {
		same = slices.Equal(u.sentinels.addrs, o.sentinels.addrs)
	}
	mineTLS, itsTLS := u.TLS(), o.TLS()
	if !same || (mineTLS == nil) != (itsTLS == nil) {
		return false
	}
	return mineTLS == nil || mineTLS.InsecureSkipVerify == itsTLS.InsecureSkipVerify
}

// Renew has new connections use the passwords of o, which must be the Same and is not used
// otherwise. It reports whether they differ from those in use.
func (u *Upstream) Renew(o *Upstream) (changed bool) {
	user, secret := o.sentinelLogin()
	s := &u.secrets
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = o.Initial.Password != u.passwordLocked() || user != s.sentinelUser ||
		secret != s.sentinelSecret
	s.password, s.changed = o.Initial.Password, true
	s.sentinelUser, s.sentinelSecret = user, secret
	return changed
}

// passwordLocked is the one in use. secrets.mu is held.
func (u *Upstream) passwordLocked() string {
	if u.secrets.changed {
		return u.secrets.password
	}
	return u.Initial.Password
}

func (u *Upstream) sentinelLogin() (user, password string) {
	u.secrets.mu.Lock()
	defer u.secrets.mu.Unlock()
	return u.secrets.sentinelUser, u.secrets.sentinelSecret
}

// renewed is a setup with the password in use, if it logs in as the URL says.
func (u *Upstream) renewed(setup [][]string) [][]string {
	initial := u.Initial
	if !initial.LoggedIn || len(setup) == 0 || !slices.Equal(setup[0], initial.Login()[0]) {
		return setup
	}
	u.secrets.mu.Lock()
	initial.Password = u.passwordLocked()
	u.secrets.mu.Unlock()
	setup = slices.Clone(setup)
	setup[0] = initial.Login()[0]
	return setup
}

// renewedAfter is renewed after the setup before was refused. again is false if there is nothing
// else to try.
func (u *Upstream) renewedAfter(err error, setup, before [][]string) (next [][]string, again bool) {
	refusal, ok := errors.AsType[*Refused](err)
	if !ok || refusal.Step != "AUTH" || u.secrets.refused == nil || !u.Initial.LoggedIn ||
		!slices.Equal(setup[0], u.Initial.Login()[0]) {
		return nil, false
	}
	u.askAgain()
	next = u.renewed(setup)
	return next, !slices.Equal(next[0], before[0])
}

// askAgain looks for other credentials, unless that was done just now.
func (u *Upstream) askAgain() {
	s := &u.secrets
	s.asking.Lock()
	defer s.asking.Unlock()
	if s.refused != nil && time.Since(s.asked) >= askAgain {
		s.refused()
		s.asked = time.Now()
	}
}
