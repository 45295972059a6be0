package browser_test

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

// A long name of the upstream, such as that of three Sentinels, leaves the figures their place; times
// in the plot have units; and a list that goes on below its end shows that.
func TestPageOfLongThings(t *testing.T) {
	t.Parallel()
	s := startSite(t, nil)
	s.lock(s.client(), "k", 600)
	b := openTab(t, s.url, 1000, 800, false)
	b.until(`document.querySelectorAll("#rows tr").length`, "1")
	const long = `"redis+sentinel://sentinel-1.example.com:26379,sentinel-2.example.com:26379," +
		"sentinel-3.example.com:26379/mymaster"`
	for _, name := range []string{long, long + `.repeat(5)`} {
		got := b.eval(`(() => { $("upstream").textContent = ` + name + `;
			const line = $("numbers").firstElementChild.getBoundingClientRect().height;
			return [$("numbers").getBoundingClientRect().height < 3.5 * line,
				document.documentElement.scrollWidth <= innerWidth].join(); })()`)
		if got != "true,true" {
			t.Errorf("the figures have three lines at most, and nothing is wider than the screen: %s",
				got)
		}
	}
	for ms, want := range map[string]string{"0": "0 ms", "3.25": "3.3 ms", "640": "640 ms",
		"1500": "1.5 s", "23400": "23 s", "600000": "10 min"} {
		if got := b.eval(`briefTime(` + ms + `)`); got != want {
			t.Errorf("%s ms are %q, want %q", ms, got, want)
		}
	}
	for _, list := range []string{"#lock-queue", "#lock-events", "#feed"} {
		got := b.eval(`getComputedStyle(document.querySelector("` + list + `")).backgroundAttachment`)
		if !strings.HasPrefix(got, "local, scroll") {
			t.Errorf("%s: %s", list, got)
		}
	}
}
