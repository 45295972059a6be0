//go:build admin

package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"lockproxy/internal/admin"
	"lockproxy/proxy"
)

const (
	shownKeys = `[...document.querySelectorAll("#rows td.key button")]
		.map(e => e.textContent).join("|")`
	focused = `document.activeElement.id || document.activeElement.dataset.sort ||
		document.activeElement.getAttribute("aria-label") || document.activeElement.tagName`
	evilKey = `<img src=x onerror="window.hacked=1">`
)

func withToken(cfg *admin.Config, _ *proxy.Config) { cfg.Token = adminToken }

func TestPageFilterAndSort(t *testing.T) {
	t.Parallel()
	s := startSite(t, nil)
	c := s.client()
	s.lock(c, "alpha", 2000, "OWNER", "zoe")
	s.lock(c, "beta", 3000)
	s.lock(c, evilKey, 4000, "OWNER", "<script>window.hacked=1</script>")
	s.lock(c, "\"'`${hacked=1}&lt;\x00\n", 1000)
	odd := "\"'`${hacked=1}&lt;\\x00\\n"
	b := openTab(t, s.url, 1280, 900, false)
	b.until(shownKeys, strings.Join([]string{odd, evilKey, "alpha", "beta"}, "|"))
	b.until(`document.getElementById("count").textContent`, "4 locks")
	b.do(chromedp.Click(`[data-sort="remaining"]`))
	b.until(shownKeys, strings.Join([]string{odd, "alpha", "beta", evilKey}, "|"))
	b.do(chromedp.Click(`[data-sort="remaining"]`))
	b.until(shownKeys, strings.Join([]string{evilKey, "beta", "alpha", odd}, "|"))
	b.until(`document.querySelector('[aria-sort]').textContent +
		document.querySelector('[aria-sort]').ariaSort`, "Remainingdescending")
	b.do(chromedp.SendKeys("#filter", "ZOE"))
	b.until(shownKeys, "alpha")
	b.until(`document.getElementById("count").textContent`, "1 lock of 4 held")
	b.until(`location.search`, "?filter=ZOE&sort=remaining&desc=1")
	b.do(chromedp.Reload())
	b.until(shownKeys, "alpha")
	b.filter("onerror")
	b.until(shownKeys, evilKey)
	if got := b.eval(`window.hacked`); got != "undefined" {
		t.Error("a lock's name was run as a script")
	}
	if got := b.eval(`document.querySelectorAll("#rows img, #rows script").length`); got != "0" {
		t.Error("a lock's name became markup")
	}
	b.filter("none such")
	b.until(`document.getElementById("empty").textContent +
		document.getElementById("empty").hidden`, "No lock that this proxy knows of matches. "+
		"One that others hold by SETNX is found by its whole name.false")

	// What is released, and what is acquired, shows without a click.
	c.Do(ctx, "UNLOCK", "alpha", "FORCE")
	s.lock(c, "gamma", 1000)
	b.filter("a")
	b.until(shownKeys, evilKey+"|beta|"+odd+"|gamma")
}

// Contended locks stand first, with the age of the oldest wait. A click on one shows its holder,
// its queue and what happened, and the address names it.
func TestPageOfOneLock(t *testing.T) {
	t.Parallel()
	s := startSite(t, remembering)
	c := s.client()
	for i := range 100 {
		s.lock(c, fmt.Sprintf("a-quiet-%d", i), 600)
	}
	s.lock(c, "stuck", 600, "OWNER", "anna")
	waited := make(chan error, 1)
	go func() { // ends with the release
		waited <- s.client().Do(ctx, "LOCK", "stuck", 600, "WAIT", 600, "OWNER", "bert").Err()
	}()
	b := openTab(t, s.url, 1280, 900, false)
	b.until(`document.querySelector("#rows tr .key button")?.textContent`, "stuck")
	b.until(`/^1 · [1-9]/.test(document.querySelector("#rows tr .waiters").textContent)`, "true")
	b.do(chromedp.Click("#rows tr .key button"))
	b.until(`document.getElementById("lock-title").textContent`, "stuck")
	for part, want := range map[string]string{
		"facts": "anna at 127.0.0.1", "queue": "bert at 127.0.0.1", "events": "acquired: anna",
	} {
		b.until(`document.getElementById("lock-`+part+`").textContent.includes("`+want+`")`, "true")
	}
	b.do(chromedp.Reload())
	b.until(`document.getElementById("lock-dialog").open`, "true")
	if err := c.Do(ctx, "UNLOCK", "stuck", "FORCE").Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	b.until(`document.getElementById("lock-events").textContent.includes("forced: anna")`, "true")
	b.until(`document.getElementById("lock-queue").textContent`, "none")
	b.shot("lock")
	b.do(chromedp.Click("#lock-dialog button"))
	b.until(`document.getElementById("lock-dialog").open + location.hash`, "false")
}

// Without a token there is nothing to release.
func TestPageReadOnly(t *testing.T) {
	t.Parallel()
	s := startSite(t, nil)
	s.lock(s.client(), "a", 100)
	b := openTab(t, s.url, 1280, 900, false)
	b.until(shownKeys, "a")
	b.until(`document.getElementById("mode").textContent`, "read-only")
	buttons := b.eval(`[...document.querySelectorAll("button")]
		.filter(e => e.checkVisibility() && /log|release/i.test(e.textContent)).length`)
	if buttons != "0" {
		t.Errorf("%s buttons to log in or release", buttons)
	}
}

func TestPageRelease(t *testing.T) {
	t.Parallel()
	s := startSite(t, withToken)
	s.lock(s.client(), evilKey, 100, "OWNER", "me")
	waiter := make(chan error, 1)
	go func() { waiter <- s.client().Do(ctx, "LOCK", evilKey, 50, "WAIT", 30).Err() }()
	b := openTab(t, s.url, 1280, 900, false)
	b.until(`document.querySelector("#rows .waiters")?.textContent.replace(/ · .*/, "")`, "1")
	b.until(`document.querySelectorAll("#rows .actions button").length`, "0")
	b.do(chromedp.Click("#login"), chromedp.SendKeys("#token", "wrong"+kb.Enter))
	b.until(`document.getElementById("login-error").textContent`, "that is not the token")
	b.do(chromedp.SendKeys("#token", adminToken+kb.Enter))
	b.until(`document.getElementById("login-dialog").open`, "false")
	b.until(`document.getElementById("mode").textContent`, "logged in")
	if got := b.eval("document.cookie"); got != "" {
		t.Errorf("scripts can read the cookie: %s", got)
	}

	b.do(chromedp.Click("#rows .actions button"))
	b.until(`document.getElementById("release-dialog").open`, "true")
	b.until(`document.getElementById("release-key").textContent`, evilKey)
	b.shot("confirm")
	b.do(chromedp.Click("#release-cancel"))
	b.until(`document.getElementById("release-dialog").open`, "false")
	if s.proxy.Stats().Locks.Forced != 0 {
		t.Error("released without a confirmation")
	}

	b.do(chromedp.Click("#rows .actions button"), chromedp.WaitVisible("#release-dialog .danger"),
		chromedp.Click("#release-dialog .danger"))
	b.until(`document.getElementById("said").textContent`, "Released "+evilKey)
	if err := <-waiter; err != nil {
		t.Errorf("the waiter: %v", err)
	}
	b.until(`document.querySelector("#rows .waiters")?.textContent +
		document.querySelector("#rows .owner")?.textContent`, "0")

	// A page that was open before another has released is told so.
	b.do(chromedp.Click("#rows .actions button"), chromedp.WaitVisible("#release-dialog .danger"))
	s.client().Do(ctx, "UNLOCK", evilKey, "FORCE")
	b.do(chromedp.Click("#release-dialog .danger"))
	b.until(`document.getElementById("said").textContent.includes("nothing was released")`, "true")
	b.do(chromedp.Click("#logout"))
	b.until(`document.getElementById("mode").textContent`, "read-only until you log in")
}

func TestPageByKeyboard(t *testing.T) {
	t.Parallel()
	s := startSite(t, withToken)
	c := s.client()
	s.lock(c, "first", 3600)
	s.lock(c, "second", 1800)
	b := openTab(t, s.url, 1280, 900, false)
	b.until(shownKeys, "first|second")
	// As one event with its text, which the page can keep from being typed.
	b.do(input.DispatchKeyEvent(input.KeyDown).WithKey("/").WithCode("Slash").WithText("/"),
		chromedp.KeyEvent("sec"))
	b.until(focused, "filter")
	b.until(shownKeys, "second")
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until(shownKeys, "first|second")

	press := func(until, key string) { // Tab until that has the focus, then the key
		t.Helper()
		for range 30 {
			if b.eval(focused) == until {
				b.do(chromedp.KeyEvent(key))
				return
			}
			b.do(chromedp.KeyEvent(kb.Tab))
		}
		t.Fatalf("Tab never comes to %s", until)
	}
	press("remaining", kb.Enter)
	b.until(shownKeys, "second|first")
	press("login", kb.Enter)
	b.until(focused, "token")
	b.do(chromedp.KeyEvent(adminToken), chromedp.KeyEvent(kb.Enter))
	b.until(`document.getElementById("mode").textContent`, "logged in")
	press("Release second", kb.Enter)
	b.until(focused, "release-cancel") // the harmless one
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until(`document.getElementById("release-dialog").open`, "false")
	b.until(focused, "Release second")
	time.Sleep(2500 * time.Millisecond) // the page is refreshed under it
	if got := b.eval(focused); got != "Release second" {
		t.Errorf("a refresh moved the focus to %s", got)
	}
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until(focused, "release-cancel")
	b.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter))
	b.until(shownKeys, "first")
}

// ratio is the contrast of an element's text with its background, as WCAG defines it.
const ratio = `((selector) => {
  const luminance = (c) => {
    const [r, g, b] = c.match(/[\d.]+/g).map(Number).map((v) =>
      (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  let e = document.querySelector(selector), behind = e;
  const unseen = (color) => /rgba\(.*, 0\)|transparent/.test(color);
  while (behind && unseen(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
  const [a, b] = [getComputedStyle(e).color, getComputedStyle(behind).backgroundColor]
    .map(luminance).sort((x, y) => y - x);
  return ((a + .05) / (b + .05)).toFixed(2);
})`

func TestPageLooks(t *testing.T) {
	t.Parallel()
	s := startSite(t, withToken)
	load(t, s)
	for _, look := range []struct {
		name          string
		width, height int64
		dark          bool
	}{{"light", 1280, 900, false}, {"dark", 1280, 900, true}, {"phone", 390, 844,
		false}, {"phone-dark", 360, 740, true}} {
		t.Run(look.name, func(t *testing.T) {
			t.Parallel()
			b := openTab(t, s.url+"/?sort=waiters&desc=1", look.width, look.height, look.dark)
			b.until(`document.querySelectorAll("#rows tr").length > 20`, "true")
			b.do(chromedp.Click("#login"), chromedp.WaitVisible("#token"),
				chromedp.SendKeys("#token", adminToken+kb.Enter))
			b.until(`document.querySelectorAll("#rows .actions button").length > 20`, "true")
			b.until(`document.querySelectorAll("#plot-acquired path").length`, "2")
			b.until(`document.querySelectorAll("td.waits").length > 0`, "true")
			time.Sleep(1200 * time.Millisecond)
			b.do(chromedp.Evaluate(`scrollTo(0, 0)`, nil))
			b.shot(look.name)
			if got := b.eval(`document.documentElement.scrollWidth - innerWidth`); got > "0" {
				t.Errorf("%s pixels wider than the screen", got)
			}
			phone := look.width < 500
			got := b.eval(`document.querySelector("thead").checkVisibility()`)
			if got == fmt.Sprint(phone) {
				t.Errorf("the table's head is visible: %s", got)
			}
			if phone {
				b.do(chromedp.ScrollIntoView("#filter"))
				b.shot(look.name + "-rows")
				const sorted = `document.getElementById("sort").dispatchEvent(new Event("change"))`
				b.do(chromedp.SetValue("#sort", "key"), chromedp.Evaluate(sorted, nil))
				b.until(`location.search`, "?sort=key&desc=1")
				got := b.eval(`Math.min(...[...document.querySelectorAll("#rows button")]
					.map(e => e.getBoundingClientRect().height)) >= 36`)
				if got != "true" {
					t.Error("buttons are too small for a finger")
				}
			}
			color := b.eval(`getComputedStyle(document.body).backgroundColor`)
			if (color == "rgb(17, 20, 23)") != look.dark {
				t.Errorf("background %s", color)
			}
			for _, selector := range []string{"body", "td.key button", "td.client", "#count", "dt",
				"#mode", "#upstream", "figcaption", "#rows button", "td.key .tag:not([hidden])"} {
				var got float64
				if json.Unmarshal([]byte(b.eval(ratio+`("`+selector+`")`)), &got); got < 4.5 {
					t.Errorf("contrast of %s is %v", selector, got)
				}
			}
		})
	}
}

// Every control has a name for people who can't see it.
func TestPageHasNames(t *testing.T) {
	t.Parallel()
	s := startSite(t, withToken)
	s.lock(s.client(), "a", 100)
	b := openTab(t, s.url, 1280, 900, false)
	b.until(shownKeys, "a")
	b.do(chromedp.Click("#login"), chromedp.SendKeys("#token", adminToken+kb.Enter))
	b.until(`document.querySelectorAll("#rows .actions button").length`, "1")
	var tree struct { // what is needed of it: a new Chromium knows values that the library doesn't
		Nodes []struct {
			Ignored bool `json:"ignored"`
			Role    struct {
				Value any `json:"value"`
			} `json:"role"`
			Name struct {
				Value any `json:"value"`
			} `json:"name"`
		} `json:"nodes"`
	}
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		return cdp.Execute(ctx, "Accessibility.getFullAXTree", nil, &tree)
	}))
	found := map[string]int{}
	for _, n := range tree.Nodes {
		if n.Ignored {
			continue
		}
		role := fmt.Sprint(n.Role.Value)
		switch role {
		case "button", "searchbox", "combobox", "image", "meter", "table", "columnheader",
			"textbox":
			found[role]++
			if n.Name.Value == nil || n.Name.Value == "" {
				t.Errorf("a %s without a name", role)
			}
		}
	}
	for role, least := range map[string]int{"button": 9, "searchbox": 1, "image": 3, "meter": 1,
		"table": 1, "columnheader": 7} {
		if found[role] < least {
			t.Errorf("%d × %s, want at least %d (%v)", found[role], role, least, found)
		}
	}
}

// load is a service at work: locks that are held, and some that many want. It ends with the test.
func load(t *testing.T, s *site) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	work := func(key string, hold time.Duration) {
		c := s.client()
		running.Go(func() {
			for ctx.Err() == nil {
				token, err := c.Do(ctx, "LOCK", key, 10, "WAIT", 5, "OWNER", "worker-"+
					key[:3]).Int64()
				if err != nil {
					continue
				}
				select {
				case <-ctx.Done():
				case <-time.After(hold):
				}
				c.Do(ctx, "UNLOCK", key, token)
			}
		})
	}
	for i := range 12 {
		work("queue:emails", time.Duration(5+i)*time.Millisecond)
		if i < 5 {
			work("report:daily", 40*time.Millisecond)
		}
	}
	c := s.client()
	for i := range 24 {
		s.lock(c, fmt.Sprintf("tenant:%02d:import", i), 600+7*i, "OWNER",
			fmt.Sprintf("importer-%d", i%5))
	}
	for i := range 4 {
		s.lock(s.client(), fmt.Sprintf("leader:%c", 'a'+i), 15, "SESSION")
	}
}

// Odd locks: an empty name, a very long owner, a session's, a connection's name, and one of another
// library. A click anywhere in a row opens its lock; what can't be released says why; and the dialog
// says what a release does to the holder.
func TestPageOfOddLocks(t *testing.T) {
	t.Parallel()
	s := startSite(t, withToken)
	c := s.client()
	s.lock(c, "", 3600)
	s.lock(c, "long", 3600, "OWNER", strings.Repeat("owner ", 80))
	session := s.client()
	session.Do(ctx, "CLIENT", "SETNAME", "worker-1")
	s.lock(session, "session", 3600, "SESSION")
	c.SetNX(ctx, "theirs", "random", time.Hour)
	b := openTab(t, s.url, 1280, 900, false)
	b.until(`document.querySelectorAll("#rows tr").length`, "4")
	const row = `[...document.querySelectorAll("#rows tr")].find(e =>
		e.querySelector("td.key button").textContent === "%s")`
	of := func(name, what string) string { return fmt.Sprintf(row, name) + what }
	b.until(of("session", `.querySelector(".owner").textContent`), "worker-1")
	b.until(`Math.max(...[...document.querySelectorAll("#rows tr")].map(e => e.offsetHeight)) < 90`,
		"true")
	b.until(`document.querySelector("#rows .client").getClientRects().length +
		" " + (document.querySelector("#rows .client").scrollHeight < 45)`, "1 true")
	b.do(chromedp.Click("#login"), chromedp.SendKeys("#token", adminToken+kb.Enter))
	b.until(of("theirs", `.querySelector(".actions").textContent`), "not by LOCK: DEL frees it")
	b.shot("odd")
	release := func(name, want string) {
		t.Helper()
		b.eval(of(name, `.querySelector(".actions button").click()`))
		b.until(`document.getElementById("release-text").textContent.includes("`+want+`")`, "true")
		b.shot("release-" + name)
		b.do(chromedp.Click("#release-cancel"))
	}
	release("session", "its holder is told at once")
	release("long", "Its holder is not told")
	b.until(`document.getElementById("release-held").textContent !== ""`, "true")
	b.eval(of("(empty)", `.querySelector("td.held").click()`))
	b.until(`document.getElementById("lock-dialog").open`, "true")
	b.until(`document.getElementById("lock-facts").textContent.includes("Token")`, "true")
	b.shot("empty")
}
