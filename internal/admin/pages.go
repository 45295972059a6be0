package admin

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// page is the live page of a proxy in front of the same Redis.
type page struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	This bool   `json:"this"` // it is this proxy's
}

// pages are the pages of the proxies in front of the same Redis, as they were found a moment ago.
type pages struct {
	lasts time.Duration // how long they are used; 0 is pagesFor
	mu    sync.Mutex
	at    time.Time // guarded by mu
	last  []page    // guarded by mu
}

const (
	pagesFor     = 5 * time.Second
	pagesTimeout = 500 * time.Millisecond
	maxPages     = 100
	maxPageURL   = 512 // bytes
)

// ParsePage checks that text can be linked to as the page of a proxy. Announcements of other
// proxies are not to be trusted.
func ParsePage(text string) (*url.URL, error) {
	page, err := url.Parse(text)
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	if err != nil || page.Scheme != "http" && page.Scheme != "https" || page.Host == "" ||
		page.User != nil || page.RawQuery != "" || page.Fragment != "" ||
		len(text) > maxPageURL || strings.ContainsFunc(text, odd) {
		return nil, errors.New("want a URL such as http://proxy-2:6390/, with no password and " +
			"nothing behind the path")
	}
	return page, nil
}

// proxyPages are the pages that are announced. They stay as they are while the upstream does not
// answer, or its user may not ask.
func (s *Server) proxyPages() []page {
	s.pages.mu.Lock()
	defer s.pages.mu.Unlock()
	if time.Since(s.pages.at) < cmp.Or(s.pages.lasts, pagesFor) || s.cfg.Proxy.Stats().Draining {
		return s.pages.last
	}
	ctx, cancel := context.WithTimeout(s.ctx, pagesTimeout)
	defer cancel()
	announced, err := s.cfg.Proxy.Pages(ctx)
	s.pages.at = time.Now()
	if err != nil {
		s.log.Debug("cannot ask Redis for the pages of other proxies", "error", err)
		return s.pages.last
	}
	s.pages.last = pagesOf(announced, s.cfg.Page)
	return s.pages.last
}

// pagesOf are the pages that can be linked to, in order of their addresses.
func pagesOf(announced []string, this string) []page {
	list := []page{}
	slices.Sort(announced)
	for _, text := range announced {
		if u, err := ParsePage(text); err == nil && len(list) < maxPages {
			name := strings.TrimSuffix(u.Host+u.EscapedPath(), "/")
			list = append(list, page{name, u.String(), text == this})
		}
	}
	return list
}
