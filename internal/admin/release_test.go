package admin_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/admin"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

const adminToken = "0123456789abcdef-the-token"

// browser keeps cookies and says where its requests come from.
type browser struct {
	s      *site
	client *http.Client
	csrf   string
	origin string
}

func (s *site) browser() *browser {
	jar, _ := cookiejar.New(nil)
	return &browser{s: s, client: &http.Client{Jar: jar}, origin: s.url}
}

func (b *browser) post(path, body string) (int, string) {
	b.s.t.Helper()
	req, _ := http.NewRequest("POST", b.s.url+path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", b.origin)
	req.Header.Set("X-CSRF-Token", b.csrf)
	resp, err := b.client.Do(req)
	if err != nil {
		b.s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	if cookie := resp.Header.Get("Set-Cookie"); path == "/api/login" && resp.StatusCode == 200 {
		for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/"} {
			if !strings.Contains(cookie, want) {
				b.s.t.Errorf("cookie without %s: %s", want, cookie)
			}
		}
	}
	return resp.StatusCode, string(text)
}

func (b *browser) login() {
	b.s.t.Helper()
	status, text := b.post("/api/login", `{"token":"`+adminToken+`"}`)
	var me struct{ CSRF string }
	if json.Unmarshal([]byte(text), &me); status != 200 || me.CSRF == "" {
		b.s.t.Fatalf("login: %d %s", status, text)
	}
	b.csrf = me.CSRF
}

func releaseBody(l lock) string {
	return fmt.Sprintf(`{"db":%d,"id":%q,"token":%d,"holder":%q}`, l.DB, l.ID, l.Token, l.Client)
}

func TestRelease(t *testing.T) {
	log := &testredis.LogBuffer{}
	s := startSite(t, func(cfg *admin.Config, behind *proxy.Config) {
		cfg.Token = adminToken
		behind.Logger = hclog.New(&hclog.LoggerOptions{Output: log})
		cfg.Logger = behind.Logger
	})
	c := s.client()
	s.lock(c, "a", 300, "OWNER", "me")
	waiter := make(chan error, 1)
	go func() { waiter <- s.waiter().Do(ctx, "LOCK", "a", 300, "WAIT", 300).Err() }()
	testwait.Until(t, "a waiter",
		func() bool { l := s.locks(""); return len(l.Locks) == 1 && l.Locks[0].Waiters == 1 })
	l := s.locks("").Locks[0]

	b := s.browser()
	if status, _ := b.post("/api/release", releaseBody(l)); status != 401 {
		t.Errorf("without login: %d", status)
	}
	if status, _ := b.post("/api/login", `{"token":"wrong"}`); status != 401 {
		t.Errorf("wrong token: %d", status)
	}
	b.login()
	csrf := b.csrf
	for name, spoil := range map[string]func(){
		"without CSRF token":   func() { b.csrf = "" },
		"another's CSRF token": func() { b.csrf = strings.Repeat("A", len(csrf)) },
		"from another origin":  func() { b.origin = "http://evil.example" },
	} {
		spoil()
		if status, text := b.post("/api/release", releaseBody(l)); status != 403 {
			t.Errorf("%s: %d %s", name, status, text)
		}
		b.csrf, b.origin = csrf, s.url
	}
	old := l
	old.Token--
	if status, text := b.post("/api/release", releaseBody(old)); status != 200 ||
		!strings.Contains(text, `"released":false`) {
		t.Errorf("a token that holds it no more: %d %s", status, text)
	}
	if status, text := b.post("/api/release", releaseBody(l)); status != 200 ||
		!strings.Contains(text, `"released":true`) {
		t.Errorf("release: %d %s", status, text)
	}
	if err := testwait.For(t, "the waiter's lock", waiter); err != nil {
		t.Errorf("the waiter wasn't given the lock: %v", err)
	}
	if st := s.proxy.Stats().Locks; st.Forced != 1 || st.HandedOver != 1 {
		t.Errorf("%+v", st)
	}
	if status, _ := b.post("/api/logout", "{}"); status != 200 {
		t.Errorf("logout: %d", status)
	}
	if status, _ := b.post("/api/release", releaseBody(l)); status != 401 {
		t.Errorf("after logout: %d", status)
	}
	for _, want := range []string{"a forced unlock released a lock: key=a db=0 token=" + fmt.Sprint(l.Token),
		"holder=" +
			l.Client, "user=default via=admin\n", "a forced unlock found no such lock: key=a",
		"the token is wrong"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log:\n%s", want, log.String())
		}
	}
	if strings.Contains(log.String(), adminToken) {
		t.Error("the admin token is in the log")
	}
}

// Without a token there is no way to change anything.
func TestReadOnly(t *testing.T) {
	s := startSite(t, nil)
	s.lock(s.client(), "a", 300)
	b := s.browser()
	for path, body := range map[string]string{"/api/login": `{"token":""}`,
		"/api/release": releaseBody(s.locks("").Locks[0])} {
		if status, text := b.post(path, body); status != 403 ||
			!strings.Contains(text, "--admin-token") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if l := s.locks(""); l.Total != 1 {
		t.Errorf("%+v", l)
	}
}

// A form of another site can't log in or release, whatever it sends.
func TestFormsAreRefused(t *testing.T) {
	s := startSite(t, func(cfg *admin.Config, _ *proxy.Config) { cfg.Token = adminToken })
	for _, kind := range []string{"application/x-www-form-urlencoded", "text/plain",
		"multipart/form-data"} {
		resp, err := http.Post(s.url+"/api/login", kind,
			strings.NewReader(`{"token":"`+adminToken+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnsupportedMediaType {
			t.Errorf("%s: %d", kind, resp.StatusCode)
		}
	}
}

// Guessing is slow.
func TestLoginTriesAreBounded(t *testing.T) {
	s := startSite(t, func(cfg *admin.Config, _ *proxy.Config) { cfg.Token = adminToken })
	if tried := s.browser().guess(); tried[401] < 5 || len(tried) != 2 {
		t.Errorf("%v", tried)
	}
}

// guess tries wrong tokens until it must wait, and returns how often it got which status. How many
// tries there are for how long is told in TestTriesOfOneAddress.
func (b *browser) guess() (tried map[int]int) {
	b.s.t.Helper()
	tried = map[int]int{}
	testwait.Until(b.s.t, "a refusal to look at more guesses", func() bool {
		status, _ := b.post("/api/login", `{"token":"guess"}`)
		tried[status]++
		return status == http.StatusTooManyRequests
	})
	return tried
}

// Wrong guesses of others do not keep the operator out.
func TestGuessesFromElsewhere(t *testing.T) {
	s := startSite(t, func(cfg *admin.Config, _ *proxy.Config) { cfg.Token = adminToken })
	guesser := s.browser()
	guesser.client.Transport = clientFrom("127.0.0.2").Transport
	guesser.guess()
	s.browser().login()
}

// The lock whose name is empty is a lock like any other.
func TestReleaseOfTheEmptyName(t *testing.T) {
	s := startSite(t, func(cfg *admin.Config, _ *proxy.Config) { cfg.Token = adminToken })
	s.lock(s.client(), "", 300)
	b := s.browser()
	b.login()
	var found lock
	testwait.Until(t, "it is shown", func() bool {
		list := s.locks("")
		if len(list.Locks) == 1 {
			found = list.Locks[0]
		}
		return len(list.Locks) == 1
	})
	if status, text := b.post("/api/release", releaseBody(found)); text != "{\"released\":true}\n" {
		t.Errorf("%d %s", status, text)
	}
	body := fmt.Sprintf(`{"db":0,"token":%d}`, found.Token)
	if status, _ := b.post("/api/release", body); status != http.StatusBadRequest {
		t.Errorf("a release without an id: %d", status)
	}
}
