//go:build admin

package admin_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/admin"
	"lockproxy/proxy"
)

// Names that break pages are shown as they are, in few lines, on large and small screens, in light
// and dark; so is what a claim of ONCE makes.
func TestPageOfOddNames(t *testing.T) {
	t.Parallel()
	s := startSite(t, func(a *admin.Config, p *proxy.Config) {
		withToken(a, p)
		remembering(a, p)
	})
	c := s.client()
	const markup = "<b>bold</b><script>document.title='run'</script>"
	for _, key := range []string{markup, "ключ-鍵-🔒-مفتاح", "\x00\xff\x01 \r\n",
		strings.Repeat("k", 300), "a key"} {
		s.lock(c, key, 3600)
	}
	long := strings.Repeat("w", 300)
	s.lock(c, long, 3600, "OWNER", long)
	c.Do(ctx, "LOCK", long, 600, "WAIT", 0.1) // it gives up, which is an event
	c.Do(ctx, "UNLOCK", long, "FORCE")
	if err := c.Do(ctx, "ONCE", "page:home", 3600).Err(); err != nil {
		t.Fatal(err)
	}
	for _, look := range []struct {
		name  string
		width int64
		dark  bool
	}{{"names", 1280, false}, {"names-dark", 1280, true}, {"names-phone", 390, false},
		{"names-phone-dark", 390, true}} {
		b := openTab(t, s.url, look.width, 1400, look.dark)
		b.until(`document.querySelectorAll("#rows tr").length`, "6")
		b.until(`[...document.querySelectorAll("td.key")].some(e =>
			e.innerText.includes("makes page:home"))`, "true")
		b.until(fmt.Sprintf(`[...document.querySelectorAll("td.key button")].some(e =>
			e.textContent === %q)`, markup), "true")
		b.until(`document.title === "run" || document.querySelectorAll("#rows b").length > 0`, "false")
		b.until(`Math.max(...[...document.querySelectorAll("#rows tr")].map(e =>
			e.offsetHeight)) < 150`, "true")
		b.until(`document.querySelectorAll("#top li a, #feed li a").length`, "3")
		b.until(`Math.max(...[...document.querySelectorAll("#top li, #feed li")].map(e =>
			e.offsetHeight)) < 150`, "true")
		b.until(`document.documentElement.scrollWidth <= innerWidth`, "true")
		b.shot(look.name)
	}
}
