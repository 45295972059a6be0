package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"lockproxy/internal/test/testwait"
)

const (
	shownKeys = `[...document.querySelectorAll("#rows td.key button")]
		.map(e => e.textContent).join("|")`
	focused = `document.activeElement.id || document.activeElement.dataset.sort ||
		document.activeElement.getAttribute("aria-label") || document.activeElement.tagName`
	evilKey = `<img src=x onerror="window.hacked=1">`
)

func TestPageFilterAndSort(t *testing.T) {
	t.Parallel()
	s := startSite(t, nil)
	c := s.client()
	s.lock(c, "alpha", 2000, "OWNER", "zoe")
	s.lock(c, "beta", 3000)
	s.lock(c, evilKey, 3600, "OWNER", "<script>window.hacked=1</script>")
	s.lock(c, "\"'`${hacked=1}&lt;\x00\n", 1500)
	odd := "\"'`${hacked=1}&lt;\\x00\\n"
	b := openTab(t, s.url, 1280, 900, false)
	b.until(shownKeys, strings.Join([]string{odd, evilKey, "alpha", "beta"}, "|"))
	b.until(`document.getElementById("count").textContent`, "4 locks")
	b.click(`[data-sort="remaining"]`)
	b.until(shownKeys, strings.Join([]string{odd, "alpha", "beta", evilKey}, "|"))
	b.click(`[data-sort="remaining"]`)
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
		document.getElementById("empty").hidden`, "No lock that this proxy knows matches the filter. "+
		"To find a lock that another program holds by SETNX, enter its whole name.false")

	// What is released, and what is acquired, shows without a click.
	c.Do(ctx, "UNLOCK", "alpha", "FORCE")
	s.lock(c, "gamma", 600)
	b.filter("a")
	b.until(shownKeys, evilKey+"|beta|"+odd+"|gamma")
}

// Who stops to think between two words of a filter types on where they were.
func TestPageFilterOfTwoWords(t *testing.T) {
	t.Parallel()
	s := startSite(t, nil)
	c := s.client()
	s.lock(c, "two words", 600)
	s.lock(c, "twowords", 600)
	b := openTab(t, s.url, 1280, 900, false)
	b.until(shownKeys, "two words|twowords")
	b.filter("two ")
	b.until(`location.search`, "?filter=two")
	b.do(chromedp.KeyEvent("words"))
	b.until(`[location.search, $("filter").value].join()`, "?filter=two+words,two words")
	b.until(shownKeys, "two words")
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
	s.lock(c, "stuck", 3600, "OWNER", "anna")
	waited := make(chan error, 1)
	go func() { // ends with the release
		waited <- s.waiter().Do(ctx, "LOCK", "stuck", 3600, "WAIT", 3600, "OWNER", "bert").Err()
	}()
	b := openTab(t, s.url, 1280, 900, false)
	b.until(`document.querySelector("#rows tr .key button")?.textContent`, "stuck")
	b.until(`/^1 · [1-9]/.test(document.querySelector("#rows tr .waiters").textContent)`, "true")
	b.click("#rows tr .key button")
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
	if err := testwait.For(t, "the waiter's lock", waited); err != nil {
		t.Fatal(err)
	}
	b.until(`document.getElementById("lock-events").textContent.includes("forced: anna")`, "true")
	b.until(`document.getElementById("lock-queue").textContent`, "none")
	b.shot("lock")
	b.click("#lock-dialog button")
	b.until(`document.getElementById("lock-dialog").open + location.hash`, "false")
}

// Without a token there is nothing to release.
func TestPageReadOnly(t *testing.T) {
	t.Parallel()
	s := startSite(t, nil)
	s.lock(s.client(), "a", 600)
	b := openTab(t, s.url, 1280, 900, false)
	b.until(shownKeys, "a")
	b.until(`"version" in session`, "true") // it has been told that nobody can log in
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
	s.lock(s.client(), evilKey, 3600, "OWNER", "me")
	waiter := make(chan error, 1)
	go func() { waiter <- s.waiter().Do(ctx, "LOCK", evilKey, 3600, "WAIT", 3600).Err() }()
	b := openTab(t, s.url, 1280, 900, false)
	b.until(`document.getElementById("mode").textContent`, "read-only until you log in")
	b.until(`document.querySelector("#rows .waiters")?.textContent.replace(/ · .*/, "")`, "1")
	b.until(`document.querySelectorAll("#rows .actions button").length`, "0")
	b.click("#login")
	b.do(chromedp.SendKeys("#token", "wrong"+kb.Enter))
	b.until(`document.getElementById("login-error").textContent`, "the token is wrong")
	b.do(chromedp.SendKeys("#token", adminToken+kb.Enter))
	b.until(`document.getElementById("login-dialog").open`, "false")
	b.until(`document.getElementById("mode").textContent`, "logged in")
	if got := b.eval("document.cookie"); got != "" {
		t.Errorf("scripts can read the cookie: %s", got)
	}

	b.click("#rows .actions button")
	b.until(`document.getElementById("release-dialog").open`, "true")
	b.until(`document.getElementById("release-key").textContent`, evilKey)
	b.shot("confirm")
	b.click("#release-cancel")
	b.until(`document.getElementById("release-dialog").open`, "false")
	if n, said := s.proxy.Server.Stats().Locks.Forced, b.eval(`$("said").textContent`); n != 0 || said != "" {
		t.Errorf("%d releases without a confirmation, said %q", n, said)
	}

	b.click("#rows .actions button")
	b.click("#release-dialog .danger")
	b.until(`document.getElementById("said").textContent`, "Released "+evilKey)
	if err := testwait.For(t, "the waiter's lock", waiter); err != nil {
		t.Errorf("the waiter: %v", err)
	}
	if n := s.proxy.Server.Stats().Locks.Forced; n != 1 {
		t.Errorf("%d releases with one confirmation", n)
	}
	b.until(`document.querySelector("#rows .waiters")?.textContent +
		document.querySelector("#rows .owner")?.textContent`, "0")

	// A page that was open before another has released is told so.
	b.click("#rows .actions button")
	b.until(`document.getElementById("release-dialog").open`, "true")
	if err := s.client().Do(ctx, "UNLOCK", evilKey, "FORCE").Err(); err != nil {
		t.Fatal(err)
	}
	b.click("#release-dialog .danger")
	b.until(`document.getElementById("said").textContent.includes("nothing was released")`, "true")
	b.click("#logout")
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
	b.until(`document.getElementById("mode").textContent`, "read-only until you log in")
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
	b.refreshed(3) // the list of what was seen, too, which comes each second time
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
			b.logIn()
			b.until(`document.querySelectorAll("#rows .actions button").length > 20`, "true")
			b.until(`document.querySelectorAll("#plot-acquired path").length`, "2")
			b.until(`document.querySelectorAll("td.waits").length > 0`, "true")
			b.refreshed(2)
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
				b.until(`document.querySelector("`+selector+`") !== null`, "true")
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
	s.lock(s.client(), "a", 600)
	b := openTab(t, s.url, 1280, 900, false)
	b.until(shownKeys, "a")
	b.logIn()
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
	b.logIn()
	b.until(of("theirs", `.querySelector(".actions").textContent`), "not taken by LOCK: DEL frees it")
	b.shot("odd")
	release := func(name, want string) {
		t.Helper()
		b.until(clicked+"("+of(name, `.querySelector(".actions button")`)+")", "true")
		b.until(`document.getElementById("release-text").textContent.includes("`+want+`")`, "true")
		b.shot("release-" + name)
		b.click("#release-cancel")
	}
	release("session", "session lock is told at once")
	release("long", "The holder is not told")
	b.until(`document.getElementById("release-held").textContent !== ""`, "true")
	b.until(clicked+"("+of("(empty)", `.querySelector("td.held")`)+")", "true")
	b.until(`document.getElementById("lock-dialog").open`, "true")
	b.until(`document.getElementById("lock-facts").textContent.includes("Token")`, "true")
	b.shot("empty")
}
