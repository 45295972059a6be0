package admin_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/admin"
	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

const adminToken = "0123456789abcdef-the-token"

type lock struct {
	ID        string
	DB        int
	Key       string
	Token     int64
	Owner     string
	Client    string
	Held      int64 `json:"held_ms"`
	Remaining int64 `json:"remaining_ms"`
	Full      int64 `json:"full_ms"`
	Session   bool
	Waiters   int
}

type lockList struct {
	Locks           []lock
	Matching, Total int
	Complete        bool
	Error           string
}

func (s *site) locks(query string) (list lockList) {
	s.t.Helper()
	status, text := s.get("/api/locks" + query)
	if err := json.Unmarshal([]byte(text), &list); err != nil || status != 200 {
		s.t.Fatalf("/api/locks%s: %d, %v\n%s", query, status, err, text)
	}
	return list
}

func (l lockList) keys() string {
	var keys []string
	for _, lock := range l.Locks {
		keys = append(keys, lock.Key)
	}
	return strings.Join(keys, " ")
}

func TestLocks(t *testing.T) {
	s := startSite(t, nil)
	c := s.client()
	token := s.lock(c, "reports", 30, "OWNER", "anna")
	s.lock(c, "imports", 60)
	s.lock(c, "session", 20, "SESSION")
	s.lock(c, "odd\n\xff<b>", 40)
	waiter := s.client()
	go waiter.Do(ctx, "LOCK", "reports", 5, "WAIT", 20)
	other := startSiteAt(t, s.redis, nil) // another proxy finds them by scanning
	eventually(t, 5*time.Second, "a waiter", func() bool { return s.locks("?filter=anna").Locks[0].Waiters == 1 })
	for _, at := range []*site{s, other} {
		eventually(t, 5*time.Second, "the locks", func() bool { l := at.locks(""); return l.Complete && l.Total == 4 })
		for query, want := range map[string]string{
			"":                               `imports odd\n\xff<b> reports session`,
			"?sort=key&desc=1":               `session reports odd\n\xff<b> imports`,
			"?sort=remaining":                `session reports odd\n\xff<b> imports`,
			"?sort=remaining&desc=1&limit=2": `imports odd\n\xff<b>`,
			"?filter=PORT":                   "imports reports",
			"?filter=anna":                   "reports",
			"?sort=nonsense&limit=x":         `imports odd\n\xff<b> reports session`,
		} {
			if got := at.locks(query).keys(); got != want {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
		}
		l := at.locks("?filter=reports").Locks[0]
		if l.Token != token || l.Owner != "anna" || !strings.HasPrefix(l.Client, "127.0.0.1:") || l.Session || l.DB != 0 ||
			l.Remaining > 30000 || l.Remaining < 20000 || l.Full < 29000 || l.Full > 31000 || l.Held > 10000 {
			t.Errorf("%+v", l)
		}
		id, _ := base64.RawURLEncoding.DecodeString(at.locks("?filter=odd").Locks[0].ID)
		if string(id) != "odd\n\xff<b>" {
			t.Errorf("id %q", id)
		}
		if !at.locks("?filter=session").Locks[0].Session {
			t.Error("a session lock isn't shown as one")
		}
	}
	c.Do(ctx, "UNLOCK", "imports", "FORCE")
	eventually(t, 5*time.Second, "its end", func() bool { return other.locks("?filter=imports").Total == 3 })
}

// Locks of other databases are shown too, once the proxy knows of one there.
func TestLocksOfOtherDatabases(t *testing.T) {
	s := startSite(t, nil)
	c := s.client().Conn()
	defer c.Close()
	c.Select(ctx, 3)
	c.Do(ctx, "LOCK", "a", 30)
	eventually(t, 5*time.Second, "the lock", func() bool { l := s.locks(""); return len(l.Locks) == 1 && l.Locks[0].DB == 3 })
}

// Without rights at the upstream, what the proxy knows by itself is shown, and why it isn't more.
func TestLocksWithoutRights(t *testing.T) {
	redis := testredis.Start(t, "--requirepass", "secret")
	s := startSiteAt(t, redis, nil)
	c := s.client().Conn()
	defer c.Close()
	if err := c.Auth(ctx, "secret").Err(); err != nil {
		t.Fatal(err)
	}
	c.Do(ctx, "LOCK", "a", 30, "OWNER", "me")
	l := s.locks("")
	if len(l.Locks) != 1 || l.Locks[0].Owner != "me" || l.Locks[0].Client == "" || !strings.Contains(l.Error, "NOAUTH") {
		t.Errorf("%+v", l)
	}
}

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
	log := &lockedLog{}
	s := startSite(t, func(cfg *admin.Config, behind *proxy.Config) {
		cfg.Token = adminToken
		behind.Logger = hclog.New(&hclog.LoggerOptions{Output: log})
		cfg.Logger = behind.Logger
	})
	c := s.client()
	s.lock(c, "a", 30, "OWNER", "me")
	waiter := make(chan error, 1)
	go func() { waiter <- s.client().Do(ctx, "LOCK", "a", 5, "WAIT", 20).Err() }()
	eventually(t, 5*time.Second, "a waiter", func() bool { l := s.locks(""); return len(l.Locks) == 1 && l.Locks[0].Waiters == 1 })
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
	if status, text := b.post("/api/release", releaseBody(old)); status != 200 || !strings.Contains(text, `"released":false`) {
		t.Errorf("a token that holds it no more: %d %s", status, text)
	}
	if status, text := b.post("/api/release", releaseBody(l)); status != 200 || !strings.Contains(text, `"released":true`) {
		t.Errorf("release: %d %s", status, text)
	}
	if err := <-waiter; err != nil {
		t.Errorf("the waiter wasn't given the lock: %v", err)
	}
	if st := s.proxy.Stats().Locks; st.Forced != 1 || st.Handed != 1 {
		t.Errorf("%+v", st)
	}
	if status, _ := b.post("/api/logout", "{}"); status != 200 {
		t.Errorf("logout: %d", status)
	}
	if status, _ := b.post("/api/release", releaseBody(l)); status != 401 {
		t.Errorf("after logout: %d", status)
	}
	for _, want := range []string{"forced unlock: key=a db=0 token=" + fmt.Sprint(l.Token), "holder=" + l.Client, "user=default via=admin released=true", "released=false", "wrong token"} {
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
	s.lock(s.client(), "a", 30)
	b := s.browser()
	for path, body := range map[string]string{"/api/login": `{"token":""}`, "/api/release": releaseBody(s.locks("").Locks[0])} {
		if status, text := b.post(path, body); status != 403 || !strings.Contains(text, "--admin-token") {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if l := s.locks(""); l.Total != 1 {
		t.Errorf("%+v", l)
	}
}

// A form of another page can't log in or release, whatever it sends along.
func TestFormsAreRefused(t *testing.T) {
	s := startSite(t, func(cfg *admin.Config, _ *proxy.Config) { cfg.Token = adminToken })
	for _, kind := range []string{"application/x-www-form-urlencoded", "text/plain", "multipart/form-data"} {
		resp, err := http.Post(s.url+"/api/login", kind, strings.NewReader(`{"token":"`+adminToken+`"}`))
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
	b, tried := s.browser(), map[int]int{}
	for range 20 {
		status, _ := b.post("/api/login", `{"token":"guess"}`)
		tried[status]++
	}
	if tried[401] > 7 || tried[401]+tried[429] != 20 {
		t.Errorf("%v", tried)
	}
}

// stream opens /events and returns its lines.
func (s *site) stream(ctx context.Context) (*http.Response, *bufio.Scanner) {
	s.t.Helper()
	req, _ := http.NewRequestWithContext(ctx, "GET", s.url+"/events?filter=a", nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return resp, lines
}

func TestStream(t *testing.T) {
	t.Parallel()
	s := startSite(t, nil)
	s.lock(s.client(), "a", 30)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, lines := s.stream(ctx)
	events := map[string]int{}
	name := ""
	began := time.Now()
	for events["locks"] < 13 && lines.Scan() { // longer than a request may take to arrive
		line := lines.Text()
		if after, ok := strings.CutPrefix(line, "event: "); ok {
			name = after
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			events[name]++
			if name == "locks" && !strings.Contains(data, `"key":"a"`) {
				t.Fatalf("%s", data)
			}
			if !json.Valid([]byte(data)) {
				t.Fatalf("not JSON: %s", data)
			}
		}
	}
	if took := time.Since(began); events["locks"] != 13 || events["state"] != 13 || took < 11*time.Second {
		t.Errorf("%v in %v: %v", events, took, lines.Err())
	}
}

func TestStreamsAreBounded(t *testing.T) {
	s := startSite(t, nil)
	ctx, cancel := context.WithCancel(ctx)
	for range 8 {
		if resp, lines := s.stream(ctx); resp.StatusCode != 200 || !lines.Scan() {
			t.Fatalf("%d", resp.StatusCode)
		}
	}
	if resp, _ := s.stream(ctx); resp.StatusCode != 503 {
		t.Errorf("one too many: %d", resp.StatusCode)
	}
	cancel()
	eventually(t, 5*time.Second, "a place again", func() bool {
		again, end := context.WithTimeout(context.Background(), time.Second)
		defer end()
		resp, _ := s.stream(again)
		return resp.StatusCode == 200
	})
}

// While nobody looks the upstream isn't scanned, and while somebody does only so much.
func TestScansAreBounded(t *testing.T) {
	redis := testredis.Start(t)
	s := startSiteAt(t, redis, nil)
	c := s.client()
	pipe := c.Pipeline()
	for i := range 60000 {
		pipe.Set(ctx, fmt.Sprint("key:", i), 1, 0)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	scans := func() (n int) {
		fmt.Sscanf(infoStat(c.Info(ctx, "commandstats").Val(), "cmdstat_scan"), "calls=%d", &n)
		return n
	}
	if n := scans(); n != 0 {
		t.Errorf("%d scans with nobody looking", n)
	}
	for range 20 { // within a second
		s.locks("")
	}
	if n := scans(); n < 1 || n > 40 {
		t.Errorf("%d scans of 500 keys within a second", n)
	}
	if s.locks("").Complete {
		t.Error("60000 keys can't have been looked through")
	}
}

func infoStat(info, name string) string {
	for line := range strings.SplitSeq(info, "\r\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return value
		}
	}
	return ""
}

// The page is whole: each file that it names is there, and nothing else is.
func TestPageFiles(t *testing.T) {
	s := startSite(t, nil)
	_, html := s.get("/")
	for _, name := range []string{"page.css", "page.js", "plot.js", "icon.svg"} {
		if status, _ := s.get("/" + name); status != 200 || !strings.Contains(html, name) {
			t.Errorf("%s: %d", name, status)
		}
	}
	for _, name := range []string{"/page/", "/page.js.map", "/index.html"} {
		if status, _ := s.get(name); status != 404 {
			t.Errorf("%s: %d", name, status)
		}
	}
	for _, outside := range []string{"http:", "https:", "//"} {
		for _, file := range []string{"/", "/page.css"} {
			if _, text := s.get(file); strings.Contains(text, outside) {
				t.Errorf("%s loads from outside", file)
			}
		}
	}
}

// lockedLog keeps what is logged.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
