package admin

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"time"

	"lockproxy/lockcmd"
)

// csrfHeader is where a page repeats its session's CSRF token, which no other page can read.
const csrfHeader = "X-CSRF-Token"

// releaseTimeout bounds one release.
const releaseTimeout = 5 * time.Second

// released is the answer to a release.
type released struct {
	Released bool   `json:"released"`
	Why      string `json:"why,omitempty"` // if not
}

// serveRelease takes {"db": …, "id": …, "token": …, "holder": …} and releases that lock, if it
// still has that token.
func (s *Server) serveRelease(w http.ResponseWriter, r *http.Request) {
	session, ok := s.logins.of(r)
	switch {
	case !s.logins.on:
		http.Error(w, "the page is read-only: start the proxy with --admin-token",
			http.StatusForbidden)
		return
	case !ok:
		http.Error(w, "the request has no login: log in first", http.StatusUnauthorized)
		return
	case subtle.ConstantTimeCompare([]byte(r.Header.Get(csrfHeader)), []byte(session.csrf)) != 1:
		http.Error(w, "the request doesn't come from the page: load it again", http.StatusForbidden)
		return
	}
	var sent struct {
		DB     int
		ID     *string
		Token  int64
		Holder string
	}
	if !readPost(w, r, &sent) {
		return
	}
	var key []byte
	err := errNoID
	if sent.ID != nil {
		key, err = base64.RawURLEncoding.DecodeString(*sent.ID)
	}
	if err != nil || sent.DB < 0 || sent.Token <= 0 {
		http.Error(w, "no such lock", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, releaseTimeout)
	defer cancel()
	as := s.cfg.Proxy.Identity()
	done, err := s.cfg.Proxy.Locks().Force(ctx, as, lockcmd.ForcedUnlock{
		DB: sent.DB, Key: string(key), Token: sent.Token, Holder: clean(sent.Holder),
		Client: r.RemoteAddr, User: as.User, Via: "admin",
	})
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
	case !done:
		writeJSON(w, released{Why: "the token no longer held the lock: nothing was released"})
	default:
		writeJSON(w, released{Released: true})
	}
}

var errNoID = errors.New("no id")

// clean is the part of a text that can be an address: the page sends it, and the log has it.
func clean(address string) string {
	for i, c := range address {
		if c <= ' ' || c > '~' || i >= 64 {
			return address[:i]
		}
	}
	return address
}
