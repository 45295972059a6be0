//go:build admin

package admin_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// tab is a page in a separate headless Chromium, which is watched for errors, of scripts and
// against the policy.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	errors []string // guarded by mu
}

func openTab(t *testing.T, url string, width, height int64, dark bool) *tab {
	t.Helper()
	profile, err := os.MkdirTemp("", "lockproxy-browser-")
	if err != nil {
		t.Fatal(err)
	}
	flags := append([]chromedp.ExecAllocatorOption{},
		chromedp.NoFirstRun, chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("hide-scrollbars",
			true), chromedp.UserDataDir(profile))
	alloc, stop := chromedp.NewExecAllocator(context.Background(), flags...)
	// of events that the library doesn't know
	browser, end := chromedp.NewContext(alloc, chromedp.WithErrorf(func(string, ...any) {}))
	limited, cancel := context.WithTimeout(browser, 3*time.Minute)
	b := &tab{t: t, ctx: limited}
	t.Cleanup(func() {
		chromedp.Cancel(browser) // waits for the browser to end
		cancel()
		end()
		stop()
		os.RemoveAll(profile)
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.errors) > 0 {
			t.Errorf("the browser complained:\n%s", strings.Join(b.errors, "\n"))
		}
	})
	chromedp.ListenTarget(limited, func(ev any) {
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
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
		}),
		chromedp.Navigate(url))
	return b
}

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.shot("failed-" + strings.ReplaceAll(b.t.Name(), "/", "-"))
		b.t.Fatalf("in the browser: %v", err)
	}
}

// eval returns what an expression is, as text.
func (b *tab) eval(expression string) string {
	b.t.Helper()
	var got string
	b.do(chromedp.Evaluate("String("+expression+")", &got))
	return got
}

// until waits for an expression to be want.
func (b *tab) until(expression, want string) {
	b.t.Helper()
	got := ""
	deadline := time.Now().Add(40 * time.Second)
	for ; time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got = b.eval(expression); got == want {
			return
		}
	}
	b.shot("failed-" + strings.ReplaceAll(b.t.Name(), "/", "-"))
	b.t.Fatalf("%s is %q, want %q", expression, got, want)
}

// filter types a filter in place of the one there is.
func (b *tab) filter(text string) {
	b.t.Helper()
	b.do(chromedp.Focus("#filter"),
		chromedp.Evaluate(`document.getElementById("filter").select()`,
			nil), chromedp.KeyEvent(text))
}

// shot keeps a screenshot if that is asked for.
func (b *tab) shot(name string) {
	dir := os.Getenv("LOCKPROXY_SCREENSHOTS")
	if dir == "" {
		return
	}
	var png []byte
	if err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot(&png)); err == nil {
		os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600)
	}
}
