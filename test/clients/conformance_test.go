//go:build clients

package clients_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/testwait"
)

// features are the rows of the table in clients/README.md, with what shows each of them. A program
// of each language does what it is told, a line at a time:
//
//	lock KEY [timeout=S] [wait=S] [max=S] [cancel]    held TOKEN, refused, cancelled or error TEXT
//	once KEY [ttl=S] [early=S] [wait=S] [timeout=S]   make TOKEN, value TEXT, refused or error TEXT
//
// With cancel, the next line cancels the wait. While it holds a lock, or makes a value:
//
//	fence WORD…  reply TEXT, lost or error TEXT   extend S  extended or lost
//	check        ok or lost                       await     told, as soon as the lock is lost
//	fork         child lost, by a child that stays
//	begin VALUE  begun or lost: a transaction of PostgreSQL that is fenced and inserts the value
//	commit       written                          sql VALUE   written or lost: both of these
//	leave        released or lost                 value TEXT  value TEXT or lost
//	raise        raised: the error of the work    value and raise end the making
//
// CA, USERNAME, PASSWORD and PREFIX are those of its client.
var features = []struct {
	name  string
	shows func(*conformance)
}{
	{"take", (*conformance).take},
	{"no wait", (*conformance).noWait},
	{"wait", (*conformance).wait},
	{"wait forever", (*conformance).waitForever},
	{"cancel a wait", (*conformance).cancel},
	{"extend", (*conformance).extend},
	{"fence", (*conformance).fence},
	{"fence in PostgreSQL", (*conformance).fenceSQL},
	{"lost", (*conformance).lost},
	{"released on every path", (*conformance).release},
	{"made once", (*conformance).once},
	{"reads the value first", (*conformance).readsFirst},
	{"durations", (*conformance).durations},
	{"TLS and login", (*conformance).secure},
	{"prefix", (*conformance).prefix},
	{"fork", (*conformance).fork},
}

// conformance is what a feature is shown with: a proxy, and a program that is told what to do.
type conformance struct {
	*testing.T
	c    language
	out  string
	rdb  *redis.Client // of the proxy
	addr string
	seen *relay // what the program says to the proxy
	p    *told
	db   *postgres
	safe string // the address of a proxy with TLS, for clients that log in
	ca   string
	keys *testredis.Server // behind it
}

func (c *conformance) key(name string) string { return "conformance:" + name }

// told is a program that is told what to do.
type told struct {
	*holder
	t     testing.TB
	lines chan string // ends with the program
}

func (c *conformance) start(env ...string) *told { return c.startAt(c.seen.addr, env...) }

func (c *conformance) startAt(addr string, env ...string) *told {
	c.Helper()
	program := c.c.clientProgram
	program.env = slices.Concat(program.env, env)
	host, port, _ := net.SplitHostPort(addr)
	p := &told{holder: program.start(c.T, c.out, slices.Concat([]string{host, port},
		program.protocols)), t: c.T, lines: make(chan string, 10)}
	go func() { // ends with the program, which ends with the test
		defer close(p.lines)
		for {
			line, err := p.stdout.ReadString('\n')
			if err != nil {
				return
			}
			p.lines <- strings.TrimSuffix(line, "\n")
		}
	}()
	return p
}

// tell has locks and claims last for ten hours, unless the line has another timeout.
func (p *told) tell(line string) {
	p.t.Helper()
	words := strings.Fields(line)
	takes := words[0] == "lock" || words[0] == "once"
	if takes && !strings.Contains(line, " timeout=") {
		line = strings.Join(slices.Insert(words, 2, "timeout=36000"), " ")
	}
	if _, err := fmt.Fprintln(p.stdin, line); err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}
}

// says fails unless the next line of the program matches, and returns what the first group matches.
func (p *told) says(want string) string {
	p.t.Helper()
	line := testwait.For(p.t, "the program says "+want, p.lines)
	m := regexp.MustCompile("^(?:" + want + ")$").FindStringSubmatch(line)
	if m == nil {
		p.t.Fatalf("the program says %q, want %s", line, want)
	}
	return m[len(m)-1]
}

func (p *told) does(line, want string) string {
	p.t.Helper()
	p.tell(line)
	return p.says(want)
}

const aToken = `held (\d+)`

// ask asks the proxy, as another client would.
func (c *conformance) ask(command string) any {
	c.Helper()
	var words []any
	for _, word := range strings.Fields(command) {
		words = append(words, word)
	}
	reply, err := c.rdb.Do(c.Context(), words...).Result()
	if err != nil && err != redis.Nil {
		c.Fatalf("%s: %v", command, err)
	}
	return reply
}

func (c *conformance) equal(what string, got, want any) {
	c.Helper()
	if got != want {
		c.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func (c *conformance) fact(key, name string) any {
	c.Helper()
	facts, _ := c.ask("LOCKINFO " + key).(map[any]any)
	return facts[name]
}

func (c *conformance) isFree(key string) {
	c.Helper()
	c.equal(key+" is free", c.ask("LOCKINFO "+key), nil)
}

// untilFree is for what ends because a connection has closed, which the proxy notices by and by.
func (c *conformance) untilFree(key string) {
	c.Helper()
	testwait.Until(c, key+" is free", func() bool { return c.ask("LOCKINFO "+key) == nil })
}

func (c *conformance) untilWaiters(key string, n int) {
	c.Helper()
	testwait.Until(c, "clients wait for "+key, func() bool {
		list, _ := c.ask("LOCKINFO " + key + " WAITERS").([]any)
		return len(list) == n
	})
}

func (c *conformance) claimOf(key string) string {
	c.Helper()
	page, _ := c.ask("LOCKSCAN 0 MATCH " + key + ":once:* COUNT 100000").([]any)
	keys, _ := page[1].([]any)
	if len(keys) != 1 {
		c.Fatalf("the claims of %s: %v", key, keys)
	}
	return keys[0].(string)
}

func (c *conformance) take() {
	key := c.key("take")
	first := c.p.does("lock "+key, aToken)
	host, _ := os.Hostname()
	owner, want := fmt.Sprint(c.fact(key, "owner")), fmt.Sprintf("@%s:%d:", host, c.p.Process.Pid)
	if !strings.Contains(owner, want) {
		c.Errorf("the owner is %q, without %q", owner, want)
	}
	c.equal("session", c.fact(key, "session"), int64(1))
	c.p.does("check", "ok")
	c.p.does("leave", "released")
	c.isFree(key)
	second := c.p.does("lock "+key, aToken)
	c.p.does("leave", "released")
	if len(second) < len(first) || second <= first {
		c.Errorf("token %s after %s", second, first)
	}
	c.p.does("lock "+key+" timeout=-1", "error .*timeout.*")
}

func (c *conformance) noWait() {
	key := c.key("no-wait")
	c.ask("LOCK " + key + " 600")
	c.p.does("lock "+key, "refused")
}

func (c *conformance) wait() {
	key := c.key("wait")
	token := c.ask("LOCK " + key + " 600").(int64)
	c.p.does("lock "+key+" wait=0.2", "refused")
	c.p.tell("lock " + key + " wait=36000")
	c.untilWaiters(key, 1)
	pings := c.seen.counted("PING")
	testwait.Until(c, "the waiter has sent two pings", func() bool {
		return c.c.silentWait || c.seen.counted("PING") >= pings+2
	})
	c.ask(proxytest.Unlock(key, token))
	c.p.says(aToken)
	c.p.does("leave", "released")
}

func (c *conformance) waitForever() {
	key := c.key("forever")
	token := c.ask("LOCK " + key + " 600").(int64)
	c.p.tell("lock " + key + " wait=0")
	c.untilWaiters(key, 1)
	c.equal("it waits for so many ms", waitFor(c.T, c.addr, key), int64(0))
	c.ask(proxytest.Unlock(key, token))
	c.p.says(aToken)
	c.p.does("leave", "released")
}

func (c *conformance) cancel() {
	key := c.key("cancel")
	token := c.ask("LOCK " + key + " 600").(int64)
	c.p.tell("lock " + key + " wait=0 cancel")
	c.untilWaiters(key, 1)
	c.p.does("cancel", "cancelled")
	c.untilWaiters(key, 0)
	c.ask(proxytest.Unlock(key, token))
	c.isFree(key)
}

func (c *conformance) extend() {
	key := c.key("extend")
	c.p.does("lock "+key+" timeout=600", aToken)
	c.p.does("extend 36000", "extended")
	if left := c.fact(key, "remaining_ms").(int64); left <= 600_000 {
		c.Errorf("it is held for %d ms", left)
	}
	c.p.tell("await")
	c.ask("UNLOCK " + key + " FORCE")
	c.p.says("told")
	c.p.does("extend 36000", "lost") // though the connection is closed
	c.p.does("leave", "lost")
}

func (c *conformance) fence() {
	key := c.key("fence")
	c.p.does("lock "+key, aToken)
	c.p.does("fence SET "+key+":value 1", "reply (OK|true)")
	c.p.does("fence GET "+key+":value", "reply 1")
	c.p.does("fence INCR "+key+":value too many", "error .*")
	c.ask("UNLOCK " + key + " FORCE")
	c.p.does("fence SET "+key+":value 2", "lost")
	c.p.does("leave", "lost")
	c.equal("what is written", c.ask("GET "+key+":value"), "1")
}

// lost: by FORCE, long before the timeout, and by MAX.
func (c *conformance) lost() {
	key := c.key("lost")
	c.p.does("lock "+key+"", aToken)
	pings := c.seen.counted("PING")
	testwait.Until(c, "the holder has sent two pings", func() bool {
		return c.c.silent || c.seen.counted("PING") >= pings+2
	})
	c.p.tell("await")
	c.ask("UNLOCK " + key + " FORCE")
	c.p.says("told")
	c.p.does("check", "lost")
	c.p.does("leave", "lost")
	c.p.does("lock "+key+" max=0.3", aToken)
	c.p.does("await", "told")
	c.p.does("leave", "lost")
}

func (c *conformance) release() {
	key := c.key("release")
	c.p.does("lock "+key, aToken)
	c.p.does("raise", "raised")
	c.untilFree(key) // also by the end of the connection alone
	killed := c.start()
	killed.does("lock "+key+"", aToken)
	killed.Process.Kill()
	c.untilFree(key)
}

func (c *conformance) once() {
	key := c.key("once")
	c.p.does("once "+key+" ttl=300", `make (\d+)`)
	other := c.start()
	other.does("once "+key, "refused")
	other.tell("once " + key + " wait=0")
	c.untilWaiters(c.claimOf(key), 1)
	c.p.does("value one", "value one")
	other.says("value one")
	if ttl := c.ask("TTL " + key).(int64); ttl <= 200 || ttl > 300 {
		c.Errorf("it lives for %d s", ttl)
	}
	c.p.does("once "+key+" early=100", "value one")
	c.p.does("once "+key+" early=400 ttl=600", `make (\d+)`)
	other.does("once "+key+" early=400", "value one")
	c.p.does("value two", "value two")
	other.does("once "+key, "value two")

	key += ":2"
	c.p.does("once "+key, `make (\d+)`)
	c.p.does("raise", "raised")
	c.p.does("once "+key, `make (\d+)`)
	c.p.does("value three", "value three")
	c.equal("TTL", c.ask("TTL "+key), int64(-1))

	key += ":3"
	c.p.does("once "+key+" timeout=600", `make (\d+)`)
	c.ask("UNLOCK " + c.claimOf(key) + " FORCE")
	c.p.does("await", "told")
	c.p.does("value late", "lost")
	c.equal("what is stored", c.ask("GET "+key), nil)
	c.p.does("once "+key+" ttl=0", `make (\d+)`)
	c.p.does("value x", "error .*")
}

// readsFirst: a value that is there costs no connection and no ONCE.
func (c *conformance) readsFirst() {
	key := c.key("first")
	c.ask("SET " + key + " there EX 600")
	c.p.does("once "+key, "value there") // has connected for what it reads
	connections, asked := c.seen.connections.Load(), c.seen.counted("ONCE")
	c.p.does("once "+key, "value there")
	c.p.does("once "+key+" early=100", "value there")
	c.equal("ONCEs", c.seen.counted("ONCE"), asked)
	c.equal("connections", c.seen.connections.Load(), connections)
}

func (c *conformance) durations() {
	key := c.key("durations")
	c.p.does("lock "+key+" timeout=900.5 wait=1.5 max=36000.25", aToken)
	if left := c.fact(key, "remaining_ms").(int64); left <= 600_000 || left > 900_500 {
		c.Errorf("it is held for %d ms", left)
	}
	c.p.does("leave", "released")
}

// secure: by TLS and as a user. A login that is refused is an error, and is not tried again.
func (c *conformance) secure() {
	user := strings.ReplaceAll(c.c.name, " ", "-")
	c.keys.Ask("ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all")
	login := []string{"CA=" + c.ca, "USERNAME=" + user, "PASSWORD=secret"}
	p, key := c.startAt(c.safe, login...), c.key("secure:")+user
	p.does("lock "+key+" wait=0", aToken)
	p.does("fence SET value:"+key+" 1", "reply (OK|true)")
	p.does("leave", "released")
	login[2] = "PASSWORD=wrong"
	c.startAt(c.safe, login...).does("lock "+key+" wait=0", "error .*")
	refused := 0
	for _, entry := range proxytest.GoRedis(c.T, c.keys.Addr()).ACLLog(c.Context(), 1000).Val() {
		if entry.Username == user {
			refused += int(entry.Count)
		}
	}
	if refused == 0 || refused > 2 { // some libraries log in by HELLO, and then by AUTH
		c.Errorf("it has tried to log in %d times by a wrong password", refused)
	}
}

func (c *conformance) prefix() {
	p := c.start("PREFIX=before:")
	p.does("lock a", aToken)
	if c.fact("before:a", "token") == nil || c.fact("a", "token") != nil {
		c.Error("the lock has no prefix")
	}
	p.does("fence MSET b 1 c 2", "reply (OK|true)")
	p.does("fence EVAL return(redis.call('SET',KEYS[1],ARGV[1])) 1 d 3", "reply (OK|true)")
	p.does("fence EVAL return(1) 1 e e", "error .*is a key is not known")
	p.does("leave", "released")
	values := c.rdb.MGet(c.Context(), "before:b", "before:c", "before:d").Val()
	c.equal("what is written", fmt.Sprint(values), "[1 2 3]")
	p.does("once f", `make (\d+)`)
	p.does("value 4", "value 4")
	c.equal("what is made", c.ask("GET before:f"), "4")
}

// fork: a child does not keep the lock of its parent.
func (c *conformance) fork() {
	key, p := c.key("fork"), c.start()
	p.does("lock "+key+"", aToken)
	p.does("fork", "child lost")
	if c.fact(key, "token") == nil {
		c.Error("the lock is free while its holder lives")
	}
	p.Process.Kill()
	c.untilFree(key)
}

// replaced has a program wait for two locks, forever for one of them, while the proxy hands over to
// another process, is ended and started again, and is killed and started again. It asks each time for
// the rest of its wait, and is given the locks in the end.
func (c *conformance) replaced() {
	addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(c))
	args := []string{"--upstream", testredis.Start(c).URL(), "--handover",
		filepath.Join(c.TempDir(), "handover.sock")}
	proxy := proxytest.StartProcessAt(c.T, addr, args...)
	taken := proxytest.Dial(c, addr)
	type lock struct {
		key    string
		token  int64
		waiter *told
		rest   int64 // of the wait, ms
	}
	var locks []*lock
	for _, seconds := range []int64{0, 36_000} {
		l := &lock{key: fmt.Sprint("replaced:", seconds), rest: seconds * 1000}
		l.token = taken.Lock(l.key + " 36000")
		l.waiter = c.startAt(addr)
		l.waiter.tell(fmt.Sprintf("lock %s wait=%d", l.key, seconds))
		locks = append(locks, l)
	}
	taken.Close() // a proxy that ends gives time to who holds a lock
	waiting := func(proxy string) {
		c.Helper()
		for _, l := range locks {
			wait := int64(-1)
			testwait.Until(c, "a program waits for "+l.key+" behind the proxy "+proxy, func() bool {
				wait = waitFor(c.T, addr, l.key)
				return wait >= 0
			})
			if wait > l.rest || (wait == 0) != (l.rest == 0) {
				c.Errorf("behind the proxy %s it waits for %d ms, not %d", proxy, wait, l.rest)
			}
			l.rest = max(wait-1, 0)
		}
	}
	waiting("of the beginning")

	old := proxy
	proxy = proxytest.StartProcessAt(c.T, addr, args...)
	old.Ends(c.T)
	waiting("that has taken over")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		proxy.Cmd.Process.Signal(sig)
		proxy.Ends(c.T)
		proxy = proxytest.StartProcessAt(c.T, addr, args...)
		waiting("after one that got the signal " + sig.String())
	}
	for _, l := range locks {
		proxytest.Dial(c, addr).Expect(proxytest.Unlock(l.key, l.token), ":1\r\n")
		l.waiter.says(aToken)
	}
}

// silent: a lock is lost once its proxy has answered nothing for 10 s, though the connection is open.
func (c *conformance) silent() {
	proxy := proxytest.StartProcess(c.T, "--upstream", testredis.Start(c).URL())
	p := c.startAt(proxy.Addr)
	p.does("lock silent timeout=1", aToken) // 10 s are the least
	p.tell("await")
	proxy.Cmd.Process.Signal(syscall.SIGSTOP) // until the test kills it
	p.says("told")
	p.does("leave", "lost")
}

// waitFor is for how long a client of this proxy waits for a lock, in ms; 0 is forever, and -1 says
// that none waits.
func waitFor(t *testing.T, addr, key string) int64 {
	rdb := redis.NewClient(testredis.Patient(&redis.Options{Addr: addr, Protocol: 2,
		MaxRetries: -1, DisableIdentity: true}))
	defer rdb.Close()
	list, _ := rdb.Do(t.Context(), "LOCKINFO", key, "WAITERS").Slice()
	for _, waiter := range list {
		fields := map[any]any{}
		for pair := range slices.Chunk(waiter.([]any), 2) {
			fields[pair[0]] = pair[1]
		}
		if _, elsewhere := fields["proxy"]; !elsewhere {
			since, _ := fields["since_ms"].(int64)
			until, _ := fields["until_ms"].(int64)
			return max(until-since, 0)
		}
	}
	return -1
}

// noLockproxy: a program that connects to a Redis without lockproxy says so. Without anything there
// its wait ends with an error, which says nothing of other clients.
func (c *conformance) noLockproxy() {
	c.startAt(testredis.Start(c).Addr()).does("lock plain", "error .*this is a Redis, not lockproxy: "+
		"connect to lockproxy's port, 6380 by default.*")
	said := c.startAt("127.0.0.1:1").does("lock nobody wait=0.2", "error (.*)")
	if strings.Contains(said, "another client") {
		c.Errorf("with nobody there it says %s", said)
	}
}

func TestHelperConformance(t *testing.T) { conform(t, languages) }

// make long SUITE=ruby has the gems that it needs.
func TestNewerRubyConformance(t *testing.T) {
	if os.Getenv("LOCKPROXY_TEST_GEMS") == "" {
		t.Fatal("LOCKPROXY_TEST_GEMS does not say where the gems are: make long SUITE=ruby does")
	}
	conform(t, newerRuby)
}

// make long SUITE=rust has the crates that it needs.
func TestRustConformance(t *testing.T) {
	conform(t, rustLanguages)
	t.Run("README.md", func(t *testing.T) {
		testReadme(t, "rust", "main.rs", "cargo run --offline --quiet --bin readme")
	})
}

func conform(t *testing.T, programs []language) {
	t.Parallel()
	ca := testtls.NewAuthority(t)
	pair := ca.Issue(t, "localhost")
	users := testredis.Start(t)
	safe := proxytest.StartProcess(t, "--upstream", users.URL(), "--tls-cert", pair.CertFile,
		"--tls-key", pair.KeyFile).Addr
	table, db := featureTable(t), startPostgres(t)
	for _, program := range programs {
		t.Run(program.name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			c := &conformance{T: t, c: program, out: installed(t, program.from), safe: safe, ca: ca.File,
				keys: users, db: db}
			for name, shows := range map[string]func(*conformance){
				"features": func(c *conformance) { c.features(table) }, "own": (*conformance).own,
				"silent-proxy": (*conformance).silent, "replaced-proxy": (*conformance).replaced,
				"no-lockproxy": (*conformance).noLockproxy} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					of := *c
					of.T = t
					shows(&of)
				})
			}
		})
	}
}

// features shows all that the program's language has, and none that it lacks.
func (c *conformance) features(table map[string]map[string]string) {
	c.addr = proxytest.StartProcess(c.T, "--upstream", testredis.Start(c).URL()).Addr
	c.rdb, c.seen = proxytest.GoRedis(c.T, c.addr), newRelay(c.T, c.addr)
	c.p = c.start()
	for _, f := range features {
		has := table[f.name][c.c.column]
		if lacks := slices.Contains(c.c.lacks, f.name); lacks == (has != "—") {
			c.Errorf("clients/README.md says %q of %s", has, f.name)
		} else if !lacks && !c.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			of, p := *c, *c.p
			p.t, of.T, of.p = t, t, &p
			f.shows(&of)
		}) {
			return // what the program does next is not what it is told next
		}
	}
	c.p.stdin.Close()
	if err := c.p.ends(c.T); err != nil {
		c.Errorf("without more to do it ends with %v", err)
	}
}

// own runs what shows that which no other language has.
func (c *conformance) own() {
	if c.c.own != nil {
		proxy := proxytest.StartProcess(c.T, "--upstream", testredis.Start(c).URL())
		host, port, _ := net.SplitHostPort(proxy.Addr)
		c.c.command(c.T, c.out, slices.Concat(c.c.own, []string{host, port}, c.c.ownLast))
	}
}

// featureTable reads the table of clients/README.md: what is said of a feature, by column.
func featureTable(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../clients/README.md")
	if err != nil {
		t.Fatal(err)
	}
	table, columns := map[string]map[string]string{}, []string(nil)
	for line := range strings.Lines(string(text)) {
		line = strings.ReplaceAll(strings.TrimSpace(line), `\|`, "/")
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			columns = nil
		case columns == nil:
			columns = cells
		default:
			row := map[string]string{}
			for i, cell := range cells {
				row[columns[i]] = cell
			}
			table[cells[0]] = row
		}
	}
	for _, f := range features {
		if table[f.name] == nil {
			t.Errorf("clients/README.md does not say how %s is written", strconv.Quote(f.name))
		}
	}
	return table
}
