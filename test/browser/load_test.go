package browser_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/admin"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// hurting are the locks of crowd that an operator looks for.
var hurting = []string{"migrate:schema", "order:1042", "queue:emails", "report:daily", "stock:main"}

// work has a client take a lock again and again, until its context ends. It holds the lock for a
// time between least and most, and is away for up to away. Nothing waits for the end of these
// times.
func work(
	ctx context.Context, c *redis.Client, key, owner string, least, most, away time.Duration,
) {
	for ctx.Err() == nil {
		token, err := c.Do(ctx, "LOCK", key, 600, "WAIT", 600, "OWNER", owner).Int64()
		if err != nil {
			continue
		}
		pause(ctx, least+rand.N(most-least+1))
		c.Do(ctx, "UNLOCK", key, token)
		pause(ctx, rand.N(away+1))
	}
}

// pause ends early with its context.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// untilEnd runs functions, which end with ctx, until the test ends.
func untilEnd(t *testing.T) (ctx context.Context, run func(func())) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return ctx, running.Go
}

// load is a service at work: locks that are held, and some that many want. It ends with the test.
func load(t *testing.T, s *site) {
	t.Helper()
	ctx, run := untilEnd(t)
	begin := func(key string, hold time.Duration) {
		c := s.waiter()
		run(func() { work(ctx, c, key, "worker-"+key[:3], hold, hold, 0) })
	}
	for i := range 12 {
		begin("queue:emails", time.Duration(5+i)*time.Millisecond)
		if i < 5 {
			begin("report:daily", 40*time.Millisecond)
		}
	}
	c := s.client()
	for i := range 24 {
		s.lock(c, fmt.Sprintf("tenant:%02d:import", i), 3000+7*i, "OWNER",
			fmt.Sprintf("importer-%d", i%5))
	}
	for i := range 4 {
		s.lock(s.client(), fmt.Sprintf("leader:%c", 'a'+i), 600, "SESSION")
	}
}

// crowd is a service with 500 locks that nobody waits for, four that many want, one whose holder
// hangs, session locks, and locks of another library. It ends with the test.
func crowd(t *testing.T, s *site) {
	t.Helper()
	ctx, run := untilEnd(t)
	quiet := s.client().Pipeline()
	for i := range 500 {
		quiet.Do(ctx, "LOCK", fmt.Sprintf("a:tenant:%03d", i), 3000+i, "OWNER",
			fmt.Sprint("importer-", i%5))
	}
	if _, err := quiet.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		s.lock(s.client(), fmt.Sprintf("leader:%c", 'a'+i), 600, "SESSION", "OWNER",
			fmt.Sprint("node-", i))
	}
	// in order, so that the queue is known
	wait := func(key, owner string, seconds int) {
		before := s.proxy.Server.Stats().Locks.Waiters
		c := s.waiter()
		run(func() { c.Do(ctx, "LOCK", key, 3600, "WAIT", seconds, "OWNER", owner) })
		testwait.Until(t, "a waiter",
			func() bool { return s.proxy.Server.Stats().Locks.Waiters > before })
	}
	s.lock(s.client(), "migrate:schema", 3600, "OWNER", "deploy-41")
	wait("migrate:schema", "deploy-42", 0)
	wait("migrate:schema", "deploy-43", 3600)
	// All wait less than ten seconds, also if Redis stops for two: longer waits are events, and
	// would take the place of those below.
	for i, key := range hurting[1:] {
		for k := range 3 + 2*i {
			c, owner := s.waiter(), fmt.Sprint(
				[]string{"shop-", "mailer-", "reporter-", "picker-"}[i], k)
			least := time.Duration(50+50*i) * time.Millisecond
			run(func() {
				work(ctx, c, key, owner, least, least+150*time.Millisecond, 100*time.Millisecond)
			})
		}
	}
	foreign := func(name string) *redis.Client { return s.connect(name, 1, testwait.Patience) }
	first, late := foreign("billing-7"), foreign("billing-8")
	if err := first.SetNX(ctx, "z:invoice:2026", "random", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	run(func() {
		for ctx.Err() == nil {
			late.SetNX(ctx, "z:invoice:2026", "other", time.Hour)
			pause(ctx, 200*time.Millisecond)
		}
	})
	s.deadlock("account:7", "account:8", "transfer-1", "transfer-2")
	s.lock(s.client(), "cron:nightly", 600, "OWNER", "cron-1")
	s.client().Do(ctx, "UNLOCK", "cron:nightly", "FORCE")
	s.lock(s.client(), "cron:hourly", 0.2, "OWNER", "cron-2")
}

// inSight are the keys of the rows that can be seen without scrolling.
const inSight = `[...document.querySelectorAll("#rows tr")]
	.filter(e => e.getBoundingClientRect().bottom <= innerHeight)
	.map(e => e.querySelector(".key button").textContent).sort().join(" ")`

// textOf is the text of an element.
func textOf(id string) string { return `document.getElementById("` + id + `").textContent` }

// linkTo is the link to a lock next to the table.
func linkTo(key string) string {
	return `[...document.querySelectorAll("#top a")].find(e => e.textContent === "` + key + `")`
}

// Of 500 locks, those that hurt are on the first screen of a desktop and of a phone. A lock's page
// says who has it and who waits, in order.
func TestPageShowsWhatHurts(t *testing.T) {
	t.Parallel()
	s := startSite(t, func(a *admin.Config, p *proxy.Config) {
		remembering(a, p)
		p.Locks.History = 16 << 20
		a.Name, a.Page = "proxy-1, 10.0.0.1:6380", "http://10.0.0.1:6390/"
	})
	startSiteAt(t, s.redis, func(a *admin.Config, _ *proxy.Config) {
		a.Page = "http://10.0.0.2:6390/"
	})
	crowd(t, s)
	for _, look := range []struct {
		name          string
		width, height int64
	}{{"desk", 1280, 800}, {"phone", 390, 844}} {
		t.Run(look.name, func(t *testing.T) {
			t.Parallel()
			b := openTab(t, s.url, look.width, look.height, false)
			shows := strings.Join(append(append([]string{}, hurting...), "z:invoice:2026"), " ")
			b.until(`(`+inSight+`).includes("`+shows+`")`, "true")
			b.until(`[...document.querySelectorAll("#top a")].slice(0, 5)
				.map(e => e.textContent).sort().join(" ")`, strings.Join(hurting, " "))
			b.until(`/ in \d+ waits?, mostly behind /.test(`+textOf("top")+`)`, "true")
			b.until(`/forced cron:nightly/.test(`+textOf("feed")+`)`, "true")
			b.until(`/expired cron:hourly/.test(`+textOf("feed")+`)`, "true")
			b.until(`/deadlock account:7 127.*, "transfer-2" waits for "account:7", held by /
				.test(`+textOf("feed")+`)`, "true")
			b.until(textOf("deadlocks"), "1")
			b.until(`[...document.querySelectorAll("#pages a")].map(e => e.textContent + " " +
				e.href + " " + e.ariaCurrent + " " + e.rel).join()`,
				"10.0.0.1:6390 http://10.0.0.1:6390/ page noopener noreferrer,"+
					"10.0.0.2:6390 http://10.0.0.2:6390/ null noopener noreferrer")
			b.until(`new Set([...document.querySelectorAll("#rows .left")]
				.map(e => Math.round(e.getBoundingClientRect().right))).size`, "1")
			if b.shoots() {
				b.until(`points.length > 10`, "true") // the plots have something to show
			}
			b.until(`document.documentElement.scrollWidth - innerWidth <= 0`, "true")
			b.shot("live-" + look.name)

			b.do(chromedp.Evaluate(linkTo("migrate:schema")+`.click()`, nil))
			b.until(textOf("lock-title"), "migrate:schema")
			b.until(textOf("lock-facts")+`.startsWith("Held bydeploy-41 at 127.0.0.1:")`, "true")
			b.until(`[...document.querySelectorAll("#lock-queue li")]
				.map(e => e.textContent.split(" ")[0]).join()`, "deploy-42,deploy-43")
			b.until(`/^deploy-42 .* waits forever$/
				.test(document.querySelector("#lock-queue li").textContent)`, "true")
			b.until(`document.querySelectorAll("#lock-timeline .span.held").length + "," +
				document.querySelectorAll("#lock-timeline .span.waited").length`, "1,2")
			b.until(`/#lock/.test(document.querySelector("#pages a").href)`, "true")
			b.shot("stuck-" + look.name)
			b.do(chromedp.Evaluate(`location.hash = `+linkTo("report:daily")+`.hash`, nil))
			b.until(textOf("lock-title"), "report:daily")
			b.until(`document.querySelectorAll("#lock-timeline .span.held").length > 5`, "true")
			b.until(`/^reporter-/
				.test(document.querySelector("#lock-queue li").textContent)`, "true")
			b.until(`document.documentElement.scrollWidth - innerWidth <= 0`, "true")
			b.shot("lock-" + look.name)
			b.do(chromedp.Evaluate(`location.hash = ""`, nil))
			b.until(`document.getElementById("lock-dialog").open`, "false")
			b.filter("z:invoice")
			b.until(`document.querySelector("#rows .tag").textContent +
				document.querySelector("#rows .owner").textContent`, "by another librarybilling-7")
			b.until(`[...document.querySelectorAll("#rows .tag:not([hidden])")].every(e => {
				const tag = e.getBoundingClientRect(),
					name = e.parentElement.querySelector("button").getBoundingClientRect();
				return tag.top < name.bottom || Math.abs(tag.left - name.left) < 1;
			})`, "true") // a tag on a line of its own begins where the name does
			b.until(`byWhat({kind: "other", library: "locklib 2.1"})`, "by locklib 2.1") // Redis 7.2
			b.click("#rows .key button")
			b.until(`/^billing-8 at .*: refused \d+ times/
				.test(document.querySelector("#lock-trying li").textContent)`, "true")
			b.until(`/Refused requests\d+ during this hold/.test(`+textOf("lock-facts")+`)`, "true")
		})
	}
}

// Points that a page has already, which it gets again when its stream was lost, are drawn once.
func TestPageDrawsPointsOnce(t *testing.T) {
	t.Parallel()
	b := openTab(t, startSite(t, nil).url, 1280, 900, false)
	b.until(`points.length > 2`, "true")
	b.until(`(showHistory([...points]),
		points.every((p, i) => !i || p.at > points[i - 1].at))`, "true")
}

// A timestamp lock that did not pass through the proxy is found by its name.
func TestPageFindsTimestamp(t *testing.T) {
	t.Parallel()
	s := startSite(t, nil)
	s.lock(s.client(), "a", 600)
	s.redis.Ask("SETNX", "old:cron", fmt.Sprint(time.Now().Add(time.Hour).UnixMilli()))
	b := openTab(t, s.url, 1280, 900, false)
	b.until(shownKeys, "a")
	b.filter("old:cron")
	b.until(shownKeys, "old:cron")
	b.until(`document.querySelector("#rows .tag").textContent +
		document.querySelector("#rows .held").textContent`, "by SETNX–")
}
