package browser_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"lockproxy/internal/test/testwait"
)

// chromium is a headless Chromium for all tests, since its start takes longer than most of them.
var chromium = sync.OnceValues(func() (context.Context, error) {
	profile, err := os.MkdirTemp("", "lockproxy-browser-")
	if err != nil {
		return nil, err
	}
	flags := append([]chromedp.ExecAllocatorOption{},
		chromedp.NoFirstRun, chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars",
			true), chromedp.UserDataDir(profile), chromedp.WSURLReadTimeout(testwait.Patience))
	alloc, stop := chromedp.NewExecAllocator(context.Background(), flags...)
	// of events that the library doesn't know
	ctx, end := chromedp.NewContext(alloc, chromedp.WithErrorf(func(string, ...any) {}),
		chromedp.WithBrowserOption(chromedp.WithDialTimeout(testwait.Patience)))
	endChromium = func() {
		chromedp.Cancel(ctx) // waits for the browser to end
		end()
		stop()
		os.RemoveAll(profile)
	}
	return ctx, chromedp.Run(ctx)
})

var endChromium = func() {}

func TestMain(m *testing.M) {
	status := m.Run()
	endChromium()
	os.Exit(status)
}

// tab is a page in a window of the browser that shares nothing with others. It is watched for
// errors, of scripts and against the policy.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	errors []string // guarded by mu
}

func openTab(t *testing.T, url string, width, height int64, dark bool) *tab {
	t.Helper()
	shared, err := chromium()
	if err != nil {
		t.Fatal(err)
	}
	whole := cdp.WithExecutor(shared, chromedp.FromContext(shared).Browser)
	profile, err := target.CreateBrowserContext().Do(whole)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { target.DisposeBrowserContext(profile).Do(whole) })
	window, err := target.CreateTarget("about:blank").WithBrowserContextID(profile).
		WithNewWindow(true).Do(whole)
	if err != nil {
		t.Fatal(err)
	}
	alone, end := chromedp.NewContext(shared, chromedp.WithTargetID(window))
	b := &tab{t: t, ctx: alone}
	t.Cleanup(func() {
		end() // waits for the window to close
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.errors) > 0 {
			t.Errorf("the browser complained:\n%s", strings.Join(b.errors, "\n"))
		}
	})
	chromedp.ListenTarget(alone, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			b.errors = append(b.errors, ev.ExceptionDetails.Error())
		case *cdplog.EventEntryAdded:
			if ev.Entry.Level == cdplog.LevelError && !strings.Contains(ev.Entry.Text, "401") {
				b.errors = append(b.errors, ev.Entry.Text+" "+ev.Entry.URL)
			}
		}
	})
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.do(chromedp.EmulateViewport(width, height),
		emulation.SetFocusEmulationEnabled(true), // as if no other window had the focus
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
		}),
		chromedp.Navigate(url))
	return b
}

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := b.run(actions...); err != nil {
		b.shot("failed-" + strings.ReplaceAll(b.t.Name(), "/", "-"))
		b.t.Fatalf("in the browser: %v", err)
	}
}

// run ends the test if the browser does not do it within the patience of tests.
func (b *tab) run(actions ...chromedp.Action) error {
	b.t.Helper()
	done := make(chan error, 1)
	go func() { done <- chromedp.Run(b.ctx, actions...) }() // ends with the window at the latest
	return testwait.For(b.t, "the browser", done)
}

// eval returns what an expression is, as text.
func (b *tab) eval(expression string) string {
	b.t.Helper()
	var got string
	b.do(chromedp.Evaluate("String("+expression+")", &got))
	return got
}

// until waits for an expression to be want. It may fail before: what it names need not be there
// yet.
func (b *tab) until(expression, want string) {
	b.t.Helper()
	got := ""
	if testwait.Holds(func() bool {
		var failed *runtime.ExceptionDetails
		err := b.run(chromedp.Evaluate("String("+expression+")", &got))
		if errors.As(err, &failed) {
			got = failed.Error()
		} else if err != nil {
			b.t.Fatalf("in the browser: %v", err)
		}
		return got == want
	}) {
		return
	}
	b.shot("failed-" + strings.ReplaceAll(b.t.Name(), "/", "-"))
	b.t.Fatalf("%s is %q, want %q", expression, got, want)
}

// clicked clicks on the middle of an element unless something else lies there. Nothing moves it
// meanwhile, as a refresh can between a look at where it is and a click there.
const clicked = `((e) => {
	e.scrollIntoView({ block: "center" });
	const r = e.getBoundingClientRect();
	const there = document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2);
	if (!e.contains(there)) return false;
	e.click();
	return true;
})`

// click clicks on an element once it can be seen.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%s(document.querySelector(%q))", clicked, selector), "true")
}

// logIn logs in with the right token.
func (b *tab) logIn() {
	b.t.Helper()
	b.click("#login")
	b.do(chromedp.SendKeys("#token", adminToken+kb.Enter))
	b.until(`document.getElementById("mode").textContent`, "logged in")
}

// refreshed waits until the page has been refreshed n times. It asks for nothing else meanwhile.
func (b *tab) refreshed(n int) {
	b.t.Helper()
	b.do(chromedp.Evaluate(`window.refreshes = 0;
		stream.addEventListener("locks", () => { window.refreshes++; });`, nil))
	b.until(fmt.Sprintf(`window.refreshes >= %d`, n), "true")
}

// filter types a filter in place of the one there is.
func (b *tab) filter(text string) {
	b.t.Helper()
	b.do(chromedp.Focus("#filter"),
		chromedp.Evaluate(`document.getElementById("filter").select()`,
			nil), chromedp.KeyEvent(text))
}

// shoots reports whether screenshots are asked for.
func (b *tab) shoots() bool { return os.Getenv("LOCKPROXY_SCREENSHOTS") != "" }

// shot keeps a screenshot if that is asked for.
func (b *tab) shot(name string) {
	dir := os.Getenv("LOCKPROXY_SCREENSHOTS")
	if !b.shoots() {
		return
	}
	var png []byte
	if err := b.run(chromedp.CaptureScreenshot(&png)); err == nil {
		os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600)
	}
}
