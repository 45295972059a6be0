package upstream

// Credentials that change while the proxy runs. The identity that a client starts as keeps its
// name, Initial: only the login that new connections are sent changes.

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// secrets are the passwords in use.
type secrets struct {
	mu                           sync.Mutex
	renewed                      []string // guarded by mu; the last is in use instead of Initial's
	sentinelUser, sentinelSecret string   // guarded by mu

	// refused is called when the server or a Sentinel refuses the URL's credentials, and may Renew
	// them. Set it before the first connection; nil is none.
	refused func()
	asking  sync.Mutex
	asked   time.Time // guarded by asking; when refused was called last
	before  [2]string // guarded by asking; the passwords that were in use then
}

// askAgain is how often the credentials are looked for again while the same are refused.
const askAgain = time.Second

// OnRefused sets a function that is called when the URL's credentials are refused. The function may
// Renew them: then they are tried once more. OnRefused must be called before the first connection.
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

// Renew makes new connections use the passwords of o, which must be the Same and is not used
// otherwise. It reports whether they differ from those in use.
func (u *Upstream) Renew(o *Upstream) (changed bool) {
	user, secret := o.sentinelLogin()
	s := &u.secrets
	s.mu.Lock()
	defer s.mu.Unlock()
	changed = user != s.sentinelUser || secret != s.sentinelSecret
	if o.Initial.Password != s.currentLocked(u.Initial.Password) {
		// Connections that have sent an earlier one are still the proxy's.
		s.renewed, changed = append(s.renewed, o.Initial.Password), true
	}
	s.sentinelUser, s.sentinelSecret = user, secret
	return changed
}

// current is the password in use, which was initial in the beginning.
func (s *secrets) current(initial string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.currentLocked(initial)
}

// currentLocked is current with mu held.
func (s *secrets) currentLocked(initial string) string {
	if n := len(s.renewed); n > 0 {
		return s.renewed[n-1]
	}
	return initial
}

// has reports whether a password has come into use since the beginning.
func (s *secrets) has(password string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.renewed, password)
}

func (u *Upstream) sentinelLogin() (user, password string) {
	u.secrets.mu.Lock()
	defer u.secrets.mu.Unlock()
	return u.secrets.sentinelUser, u.secrets.sentinelSecret
}

// Login has the requests that make a new connection one of Initial, with the password in use.
func (u *Upstream) Login() [][]string { return u.current(u.Initial.Login()) }

// LoginAfter is Login after Redis has refused a login. again is false if there is no other
// password.
func (u *Upstream) LoginAfter(sent [][]string) (next [][]string, again bool) {
	if !u.isOwn(sent) {
		return nil, false
	}
	u.askAgain(sent)
	next = u.current(sent)
	return next, !slices.Equal(next[0], sent[0])
}

// isOwn reports whether a setup logs in as the proxy does, with a password that is or was in use.
func (u *Upstream) isOwn(setup [][]string) bool {
	if !u.Initial.LoggedIn || len(setup) == 0 {
		return false
	}
	login := u.Initial.Login()[0]
	last := len(login) - 1
	return len(setup[0]) == len(login) && slices.Equal(setup[0][:last], login[:last]) &&
		(setup[0][last] == login[last] || u.secrets.has(setup[0][last]))
}

// current is a setup with the password in use, if it logs in as the proxy does.
func (u *Upstream) current(setup [][]string) [][]string {
	if !u.isOwn(setup) {
		return setup
	}
	setup = slices.Clone(setup)
	own := u.Initial
	own.Password = u.secrets.current(own.Password)
	setup[0] = own.Login()[0]
	return setup
}

// InUse is an identity with the password in use, if it logs in as the proxy does.
func (u *Upstream) InUse(as Identity) Identity {
	own := u.Initial
	if as.LoggedIn && own.LoggedIn && cmp.Or(as.User, "default") == cmp.Or(own.User, "default") &&
		(as.Password == own.Password || u.secrets.has(as.Password)) {
		as.Password = u.secrets.current(own.Password)
	}
	return as
}

// askAgain looks for other credentials, unless that was done just now because of those in use. sent
// is the login that was refused; nil is a Sentinel's. If another is in use by now, nothing is done.
func (u *Upstream) askAgain(sent [][]string) {
	s := &u.secrets
	s.asking.Lock()
	defer s.asking.Unlock()
	if sent != nil && !slices.Equal(u.current(sent)[0], sent[0]) {
		return
	}
	_, sentinels := u.sentinelLogin()
	inUse := [2]string{s.current(u.Initial.Password), sentinels}
	if s.refused != nil && (inUse != s.before || time.Since(s.asked) >= askAgain) {
		s.before = inUse
		s.refused()
		s.asked = time.Now()
	}
}
