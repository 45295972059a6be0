package top

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/redis/go-redis/v9"
	"github.com/rivo/uniseg"

	"lockproxy/internal/names"
	"lockproxy/internal/survey"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/proxy"
)

var ctx = context.Background()

// startProxy serves in front of a redis-server until the test ends, and returns a client of it.
func startProxy(t *testing.T) (server *testredis.Server, o Options) {
	t.Helper()
	server = testredis.Start(t)
	behind, err := upstream.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := proxy.New(proxy.Config{Upstream: behind,
		Locks: lockcmd.Config{MaxTimeout: time.Hour, FenceRetention: time.Minute,
			History: 1 << 20}})
	served := make(chan error, 1)
	go func() { served <- p.Serve(ln) }()
	t.Cleanup(func() {
		p.Close()
		<-served
	})
	return server, Options{Client: client(t, ln.Addr().String()), Addr: "here",
		Query: survey.Query{Sort: survey.ByKey}, Interval: 50 * time.Millisecond}
}

func client(t *testing.T, addr string) *redis.Client {
	c := redis.NewClient(testredis.Patient(&redis.Options{
		Addr: addr, MaxRetries: -1, Protocol: 2,
		DisableIdentity: true}))
	t.Cleanup(func() { c.Close() })
	return c
}

func TestSnapshot(t *testing.T) {
	_, o := startProxy(t)
	o.Client.Do(ctx, "LOCK", "b", 1000, "OWNER", "anna")
	o.Client.Do(ctx, "LOCK", "a\x1b[2J\n", 3000)
	var out bytes.Buffer
	if err := Snapshot(ctx, o, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "lockproxy here  2 locks  0 waiting") ||
		!strings.HasPrefix(lines[1], "KEY") ||
		!strings.HasPrefix(lines[2], `a\x1b[2J\n `) || !strings.HasPrefix(lines[3], "b ") ||
		!strings.Contains(lines[3], "anna") ||
		!strings.Contains(lines[3], "##########") {
		t.Errorf("got\n%s", out.String())
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("a lock's name can command the terminal")
	}
}

// A lock that another library has for centuries is found by its name. The text in a lock's
// record does not command the terminal.
func TestSnapshotOfOddLocks(t *testing.T) {
	server, o := startProxy(t)
	o.Client.Do(ctx, "SET", "centuries", "random", "NX", "PX", "9000000000000000")
	o.Client.Do(ctx, "LOCK", "forged", 1000)
	direct := client(t, server.Addr())
	for _, record := range direct.Keys(ctx, "forged?*").Val() {
		text := direct.Get(ctx, record).Val()
		text = strings.Replace(text, "127.0.0.1:", "\x1b[2J\x1b[3J1:", 1)
		direct.Set(ctx, record, text, redis.KeepTTL)
	}
	for name, want := range map[string]string{"centuries": "##########", "forged": `\x1b[2J`} {
		var out bytes.Buffer
		o.Query.Filter = name
		if err := Snapshot(ctx, o, &out); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Split(out.String(), "\n"); len(lines) < 4 ||
			!strings.HasPrefix(lines[2], name+" ") || !strings.Contains(lines[2], want) ||
			strings.Contains(out.String(), "\x1b") {
			t.Errorf("got\n%q", out.String())
		}
	}
}

func TestSnapshotWithoutLockproxy(t *testing.T) {
	server, _ := startProxy(t)
	err := Snapshot(ctx, Options{Client: client(t, server.Addr())}, &bytes.Buffer{})
	if err != errNoLockproxy {
		t.Errorf("of a plain Redis: %v", err)
	}
}

// Why nothing can be shown is explained, and the explanation goes when the proxy answers again.
func TestFailureIsExplained(t *testing.T) {
	server, o := startProxy(t)
	o.Explain = func(_ context.Context, err error) error { return fmt.Errorf("explained: %w", err) }
	s := watch(t, o, 100, 20)
	s.until("no explanation", func(text string) bool { return !strings.Contains(text, "explained") })
	server.Kill()
	s.shows("explained: ")
	if err := Snapshot(ctx, o, &bytes.Buffer{}); err == nil ||
		!strings.HasPrefix(err.Error(), "explained: ") {
		t.Errorf("a snapshot: %v", err)
	}
	server.Restart()
	s.until("no explanation", func(text string) bool { return !strings.Contains(text, "explained") })
}

// terminal is a screen for a test to type on and to read.
type terminal struct {
	t *testing.T
	tcell.SimulationScreen
	ended chan error

	mu   sync.Mutex
	text []string // guarded by mu; what was shown last
}

// Show keeps what is shown, on the goroutine that draws.
func (s *terminal) Show() {
	s.SimulationScreen.Show()
	cells, width, height := s.GetContents()
	text := make([]string, height)
	for y := range height {
		var b strings.Builder
		for _, c := range cells[y*width : (y+1)*width] {
			b.WriteString(string(c.Runes))
		}
		text[y] = strings.TrimRight(b.String(), " ")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = text
}

func watch(t *testing.T, o Options, width, height int) *terminal {
	t.Helper()
	s := &terminal{t: t, SimulationScreen: tcell.NewSimulationScreen("UTF-8"),
		ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(ctx)
	go func() { s.ended <- Watch(ctx, o, s) }()
	t.Cleanup(cancel)
	s.shows("q quit")
	s.SetSize(width, height)
	return s
}

func (s *terminal) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text
}

func (s *terminal) shows(want string) {
	s.t.Helper()
	s.until(want, func(text string) bool { return strings.Contains(text, want) })
}

func (s *terminal) until(what string, ok func(text string) bool) {
	s.t.Helper()
	text := ""
	if !testwait.Holds(func() bool {
		text = strings.Join(s.lines(), "\n")
		return ok(text)
	}) {
		s.t.Fatalf("not shown: %s\n%s", what, text)
	}
}

// keys are the names in the table, in order.
func (s *terminal) keys() string {
	var names []string
	lines := s.lines()
	for _, line := range lines[min(3, len(lines)):max(len(lines)-1, min(3, len(lines)))] {
		if name, _, _ := strings.Cut(line, " "); name != "" {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

func (s *terminal) showsKeys(want string) {
	s.t.Helper()
	s.until("the keys "+want, func(string) bool { return s.keys() == want })
}

func (s *terminal) types(text string) {
	for _, r := range text {
		s.InjectKey(tcell.KeyRune, r, 0)
	}
}

func TestWatch(t *testing.T) {
	server, o := startProxy(t)
	o.Interval = 5 * time.Millisecond
	for i, key := range []string{"beta", "alpha", "gamma"} {
		o.Client.Do(ctx, "LOCK", key, 1000*(i+1), "OWNER", fmt.Sprint("owner-", key))
	}
	s := watch(t, o, 100, 12)
	s.showsKeys("alpha beta gamma")
	s.types("ssss") // owner, client, held, remaining
	s.showsKeys("beta alpha gamma")
	s.types("r")
	s.showsKeys("gamma alpha beta")
	s.types("/r-BET")
	s.showsKeys("beta")
	s.shows("filter: r-BET_")
	s.types("q") // a letter of the filter
	s.shows("nothing matches")
	s.InjectKey(tcell.KeyBackspace, 0, 0)
	s.showsKeys("beta")
	s.InjectKey(tcell.KeyEnter, 0, 0)
	s.InjectKey(tcell.KeyEscape, 0, 0)
	s.showsKeys("gamma alpha beta")

	o.Client.Do(ctx, "UNLOCK", "alpha", "FORCE")
	s.showsKeys("gamma beta")
	s.types(" ")
	s.shows("paused at")
	scripts := regexp.MustCompile(`cmdstat_evalsha:calls=\d+`)
	asked := func() string { // after much longer than the interval
		direct, got := client(t, server.Addr()), ""
		for range 200 {
			got = scripts.FindString(direct.Info(ctx, "commandstats").Val())
		}
		return got
	}
	testwait.Until(t, "it asks no more", func() bool {
		before := asked()
		return asked() == before
	})
	o.Client.Do(ctx, "UNLOCK", "beta", "FORCE")
	if before := asked(); asked() != before {
		t.Error("it asks while it is paused")
	}
	s.showsKeys("gamma beta")
	s.types(" ")
	s.showsKeys("gamma")

	server.Kill()
	s.shows("UPSTREAM")
	server.Restart()
	s.shows("no locks")
	s.types("q")
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

// docs/observability.md shows two screens: their headings and last lines are these.
func TestDocumentedScreens(t *testing.T) {
	text, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```text\nlockproxy .*?\n```").FindAllString(string(text), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d screens in docs/observability.md", len(blocks))
	}
	_, o := startProxy(t)
	o.Client.Do(ctx, "LOCK", "report:daily", 1000, "OWNER", "reporter-6")
	o.Query = survey.Query{Sort: survey.ByWaiters, Descending: true}
	s := watch(t, o, 92, 31)
	heading := regexp.MustCompile(`(?m)^(KEY|one lock|HOLDER|QUEUE|LAST HOUR|q quit).*`)
	shows := func(block string, want int) {
		t.Helper()
		lines := heading.FindAllString(block, -1)
		if len(lines) != want {
			t.Errorf("%d headings, want %d:\n%s", len(lines), want, block)
		}
		for _, line := range lines {
			s.shows(line)
		}
	}
	s.showsKeys("report:daily")
	shows(blocks[0], 2)
	s.InjectKey(tcell.KeyEnter, 0, 0)
	shows(blocks[1], 5)
}

// More locks than lines are scrolled through.
func TestWatchScrolls(t *testing.T) {
	_, o := startProxy(t)
	for i := range 30 {
		o.Client.Do(ctx, "LOCK", fmt.Sprintf("k%02d", i), 1000)
	}
	s := watch(t, o, 80, 9)
	s.showsKeys("k00 k01 k02 k03 k04")
	for range 5 { // to the line below the last
		s.InjectKey(tcell.KeyDown, 0, 0)
	}
	s.showsKeys("k01 k02 k03 k04 k05")
	s.InjectKey(tcell.KeyPgDn, 0, 0)
	s.showsKeys("k05 k06 k07 k08 k09")
	s.InjectKey(tcell.KeyEnd, 0, 0)
	s.showsKeys("k25 k26 k27 k28 k29")
	s.InjectKey(tcell.KeyDown, 0, 0)
	for range 5 {
		s.InjectKey(tcell.KeyUp, 0, 0)
	}
	s.showsKeys("k24 k25 k26 k27 k28")
	s.InjectKey(tcell.KeyHome, 0, 0)
	s.showsKeys("k00 k01 k02 k03 k04")
	s.InjectKey(tcell.KeyCtrlC, 0, 0)
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

// A key leads to what locks have cost, and on to what happened; Enter to one lock, with its holder,
// its queue and its last holders.
func TestWatchSeen(t *testing.T) {
	_, o := startProxy(t)
	o.Client.Do(ctx, "LOCK", "order:1", 1000, "OWNER", "anna")
	o.Client.Do(ctx, "LOCK", "order:2", 1000, "OWNER", "emil")
	o.Client.Do(ctx, "LOCK", "quiet", 1000)
	o.Client.Do(ctx, "UNLOCK", "quiet", "FORCE")
	waited := make(chan error, 1)
	go func() { // ends with the release
		waited <- o.Client.Do(ctx, "LOCK", "order:1", 1000, "WAIT", 60, "OWNER", "bert").Err()
	}()
	s := watch(t, o, 120, 24)
	s.showsKeys("order:1 order:2")
	s.InjectKey(tcell.KeyTab, 0, 0)
	s.shows("what locks have cost")
	s.until("order:1 first, blamed on anna", func(string) bool {
		line := s.lines()[3]
		return strings.HasPrefix(line, "order:1 ") && strings.Contains(line, " anna ") &&
			len(strings.Fields(line)) > 7
	})
	s.types("g")
	s.shows("order:* ")
	s.types("gs")
	s.shows("by hold")
	s.InjectKey(tcell.KeyTab, 0, 0)
	s.until("the last event first", func(string) bool {
		return strings.Contains(s.lines()[3], " forced ") &&
			strings.Contains(s.lines()[4], " acquired ")
	})
	s.types("/emil")
	s.until("one event", func(string) bool { return s.lines()[4] == "" })
	s.InjectKey(tcell.KeyEscape, 0, 0)
	s.InjectKey(tcell.KeyTab, 0, 0)
	s.showsKeys("order:1 order:2")
	s.InjectKey(tcell.KeyEnter, 0, 0)
	s.shows("  1  anna at 127.0.0.1")
	s.shows("  1  bert at 127.0.0.1")
	if err := o.Client.Do(ctx, "UNLOCK", "order:1", "FORCE").Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Fatal(err)
	}
	s.shows("  1  bert at 127.0.0.1")
	s.shows("     nobody")
	s.until("what happened to it", func(text string) bool {
		forced := regexp.MustCompile(`forced +anna at .* █+`)
		return forced.MatchString(text) && strings.Contains(text, "···") &&
			!strings.Contains(text, "emil")
	})
	s.InjectKey(tcell.KeyEscape, 0, 0)
	s.showsKeys("order:1 order:2")
}

// Locks that foreign clients hold are there too: those that pass by, and others by their names.
// A foreign client's library is shown where it is known: Redis knows CLIENT SETINFO since 7.2.
func TestWatchForeign(t *testing.T) {
	server, o := startProxy(t)
	library, shown := "other", ""
	theirs := redis.NewClient(testredis.Patient(&redis.Options{
		Addr: o.Client.Options().Addr, PoolSize: 1,
		DisableIdentity: true}))
	t.Cleanup(func() { theirs.Close() })
	if theirs.Do(ctx, "CLIENT", "SETINFO", "lib-name", "locklib").Err() == nil {
		library, shown = "locklib", "(locklib)"
	}
	theirs.SetNX(ctx, "theirs", "random", 100*time.Second)
	server.Ask("SET", "direct", fmt.Sprint(time.Now().Add(100*time.Second).UnixMilli()))
	for range 3 {
		o.Client.SetNX(ctx, "theirs", "another", 100*time.Second)
	}
	s := watch(t, o, 120, 24)
	s.showsKeys("theirs")
	s.shows(shown)
	s.until("a client that tries again and again waits", func(string) bool {
		return strings.HasSuffix(s.lines()[3], " 1")
	})
	s.InjectKey(tcell.KeyEnter, 0, 0)
	s.shows(" (not by LOCK: " + library + "), held for ")
	s.shows(", others refused 3 times, ")
	s.shows(", in no queue: tries for ")
	s.InjectKey(tcell.KeyEscape, 0, 0)
	s.types("/direct")
	s.showsKeys("direct")
}

// Deadlocks are counted above the table.
func TestWatchDeadlocks(t *testing.T) {
	_, o := startProxy(t)
	o.Client.Do(ctx, "LOCK", "doc", 600, "SHARED", "OWNER", "anna")
	o.Client.Do(ctx, "LOCK", "doc", 600, "WAIT", 2, "OWNER", "anna") // waits for itself
	s := watch(t, o, 120, 24)
	s.shows("1 deadlock ")
}

// A shared lock is one line, and its holders are listed.
func TestWatchShared(t *testing.T) {
	_, o := startProxy(t)
	for _, name := range []string{"anna", "bert", "carl"} {
		o.Client.Do(ctx, "LOCK", "doc", 1000, "SHARED", "OWNER", name)
	}
	s := watch(t, o, 120, 24)
	s.showsKeys("doc")
	s.shows("carl +2")
	s.InjectKey(tcell.KeyEnter, 0, 0)
	for i, name := range []string{"carl", "bert", "anna"} {
		s.shows(fmt.Sprintf("  %d  %s at 127.0.0.1", i+1, name))
	}
}

func TestLibraryIsShown(t *testing.T) {
	h := lockinfo.Info{Owner: "anna", Library: "locklib 2.1\n", Kind: "other", Holders: 1,
		Remaining: time.Second}
	if got := ownerText(survey.Row{Info: h}); got != `anna (locklib 2.1\n)` {
		t.Error(got)
	}
	if got := holderLine(h); !strings.HasPrefix(got, `anna (not by LOCK: locklib 2.1\n), held `) {
		t.Error(got)
	}
}

// Whatever the width, lines fit, and the least important columns are left out first.
func TestTableFits(t *testing.T) {
	rows := []survey.Row{{Info: lockinfo.Info{
		Lock: names.Lock{Key: strings.Repeat("日本語キー", 30)}, Owner: strings.Repeat("o", 300),
		Client: "[2001:db8::1234:5678]:65535",
		Age:    400 * 24 * time.Hour, Remaining: 400 * 24 * time.Hour, Waiters: 99999,
	}, Lifetime: 800 * 24 * time.Hour}}
	for width := range 300 {
		list := columns(width, rows)
		line := row(list, rows[0], '█', '·')
		if got := uniseg.StringWidth(line); got > max(width, 7) {
			t.Errorf("width %d: a line of %d", width, got)
		}
		if list[0].by != survey.ByKey || list[len(list)-1].by != survey.ByWaiters {
			t.Errorf("width %d: %+v", width, list)
		}
		if width >= 90 && len(list) != 6 {
			t.Errorf("width %d: only %d columns", width, len(list))
		}
	}
	for _, test := range []struct {
		text  string
		width int
		right bool
		want  string
	}{
		{"abc", 5, false, "abc  "}, {"abc", 5, true, "  abc"}, {"abcdef", 4, false, "abc…"},
		{"日本語", 4, false, "日… "}, {"", 2, false, "  "},
	} {
		if got := fit(test.text, test.width, test.right); got != test.want {
			t.Errorf("fit(%q, %d) is %q, want %q", test.text, test.width, got, test.want)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.0s", 4260 * time.Millisecond: "4.3s", 42 * time.Second: "42s",
		100 * time.Second: "1m40s", time.Hour: "1h00m",
		3*time.Hour + 20*time.Minute: "3h20m", 50 * time.Hour: "2d02h",
	} {
		if got := Span(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
