package admin

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"maps"
	"net/http"
	"sync"
	"time"
)

const (
	cookieName = "lockproxy-session"
	// sessionFor is how long a login lasts.
	sessionFor = 12 * time.Hour
	// maxSessions bounds them; the one that ends first goes.
	maxSessions = 64
	// loginEvery is how often one address may try to log in, once loginBurst tries have been used
	// up.
	loginEvery = time.Second
	loginBurst = 5
	// maxBody bounds what is posted, bytes.
	maxBody = 16 << 10
)

// logins are the sessions of those who have shown the token.
type logins struct {
	digest [sha256.Size]byte // of the token
	on     bool              // there is a token

	mu       sync.Mutex
	sessions map[string]login // guarded by mu; by the cookie's value
	tries    map[string]tries // guarded by mu; by address, of those that have tried lately
}

// tries are the attempts to log in that one address has left.
type tries struct {
	left   int       // at once
	refill time.Time // when left was last filled up
}

// maxTriers bounds the addresses whose tries are counted apart; the others share one count.
const maxTriers = 1024

func (t tries) at(now time.Time) tries {
	if more := int(now.Sub(t.refill) / loginEvery); more > 0 {
		return tries{min(t.left+more, loginBurst), now}
	}
	return t
}

type login struct {
	csrf string
	ends time.Time
}

func newLogins(token string) *logins {
	return &logins{digest: sha256.Sum256([]byte(token)), on: token != "",
		sessions: map[string]login{}, tries: map[string]tries{}}
}

// allow reports whether an address may try to log in now. Others' wrong guesses do not keep the
// operator out, and guessing is slow for each address.
func (l *logins) allow(address string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.tries[address]; !known && len(l.tries) >= maxTriers {
		maps.DeleteFunc(l.tries,
			func(_ string, t tries) bool { return t.at(now).left == loginBurst })
		if len(l.tries) >= maxTriers {
			address = ""
		}
	}
	mine, known := l.tries[address]
	if !known {
		mine = tries{loginBurst, now}
	}
	if mine = mine.at(now); mine.left > 0 {
		mine.left--
		l.tries[address] = mine
		return true
	}
	return false
}

// isToken compares in a time that tells nothing.
func (l *logins) isToken(token string) bool {
	digest := sha256.Sum256([]byte(token))
	return l.on && subtle.ConstantTimeCompare(digest[:], l.digest[:]) == 1
}

// begin makes a session.
func (l *logins) begin(now time.Time) (cookie string, made login) {
	cookie, made = rand.Text(), login{csrf: rand.Text(), ends: now.Add(sessionFor)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.sessions) >= maxSessions {
		first := ""
		for name, session := range l.sessions {
			if first == "" || session.ends.Before(l.sessions[first].ends) {
				first = name
			}
		}
		delete(l.sessions, first)
	}
	l.sessions[cookie] = made
	return cookie, made
}

// of returns the session that a request belongs to.
func (l *logins) of(r *http.Request) (found login, ok bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return found, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	found, ok = l.sessions[cookie.Value]
	return found, ok && time.Now().Before(found.ends)
}

func (l *logins) end(r *http.Request) {
	if cookie, err := r.Cookie(cookieName); err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.sessions, cookie.Value)
	}
}

// whoami tells a page about its session.
type whoami struct {
	CanLogin bool   `json:"can_login"` // there is a token to log in with
	LoggedIn bool   `json:"logged_in"`
	CSRF     string `json:"csrf,omitempty"`
	Version  string `json:"version"`
}

func (s *Server) serveSession(w http.ResponseWriter, r *http.Request) {
	session, ok := s.logins.of(r)
	me := whoami{CanLogin: s.logins.on, LoggedIn: ok, Version: s.cfg.Proxy.Stats().Version}
	if ok {
		me.CSRF = session.csrf
	}
	writeJSON(w, me)
}

// serveLogin takes {"token": …} and gives a session's cookie for it.
func (s *Server) serveLogin(w http.ResponseWriter, r *http.Request) {
	var sent struct{ Token string }
	if !readPost(w, r, &sent) {
		return
	}
	switch {
	case !s.logins.on:
		http.Error(w, "the page is read-only: start the proxy with --admin-token",
			http.StatusForbidden)
	case !s.logins.allow(addressOf(r), time.Now()):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many attempts: wait a second, and try again", http.StatusTooManyRequests)
	case !s.logins.isToken(sent.Token):
		s.log.Warn("a login on the admin page was refused: the token is wrong",
			"client", r.RemoteAddr)
		http.Error(w, "the token is wrong", http.StatusUnauthorized)
	default:
		cookie, session := s.logins.begin(time.Now())
		http.SetCookie(w, &http.Cookie{
			Name: cookieName, Value: cookie, Path: "/", MaxAge: int(sessionFor.Seconds()),
			HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
		})
		s.log.Info("an operator has logged in on the admin page", "client", r.RemoteAddr)
		writeJSON(w, whoami{CanLogin: true, LoggedIn: true, CSRF: session.csrf})
	}
}

func (s *Server) serveLogout(w http.ResponseWriter, r *http.Request) {
	if !readPost(w, r, &struct{}{}) {
		return
	}
	s.logins.end(r)
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	writeJSON(w, whoami{CanLogin: s.logins.on})
}

// readPost reads JSON that a page of this server has posted. Otherwise it answers why not, and
// returns false.
func readPost(w http.ResponseWriter, r *http.Request, into any) bool {
	switch {
	case !sameOrigin(r):
		http.Error(w, "the request does not come from a page of this server: load the page again",
			http.StatusForbidden)
		return false
	// no form of another page can send this type
	case r.Header.Get("Content-Type") != "application/json":
		http.Error(w, "the request has another Content-Type: want application/json",
			http.StatusUnsupportedMediaType)
		return false
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(into); err != nil {
		http.Error(w, "the body is not the JSON that this request takes", http.StatusBadRequest)
		return false
	}
	return true
}
