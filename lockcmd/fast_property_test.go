//go:build !race

package lockcmd

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"lockproxy/internal/names"
	"lockproxy/internal/test/testredis"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// recordedRun wraps a script. The last four of ARGV are the time (seconds, microseconds), the TTL
// of the lock, and "full" if the memory is. So two runs differ in nothing else. The keys live an
// hour longer than the script asks for: none expires during the test. It returns {reply, writes}.
const recordedRun = `
local server, writes, dirty, last = redis, {}, false, #ARGV
local redis = {error_reply = server.error_reply, sha1hex = server.sha1hex}
function redis.call(command, ...)
  local args = {...}
  if command == 'TIME' then return {ARGV[last - 3], ARGV[last - 2]} end
  if command == 'PTTL' then
    return server.call('EXISTS', args[1]) == 0 and -2 or tonumber(ARGV[last - 1])
  end
  if ARGV[last] == 'full' and not dirty and (command == 'SET' or command == 'ZADD') then
    error('OOM command not allowed')
  end
  if command == 'SET' then
    local real = {unpack(args)}
    real[4] = string.format('%.0f', args[4] + 3600000)
    local done = server.call('SET', unpack(real))
    if not done then return done end
    args[5] = nil -- NX: it was free
  end
  if command ~= 'SET' and string.find(
      'GET MGET EXISTS ZRANGE ZRANGEBYSCORE ZREVRANGE ZSCORE ZCOUNT',
      command, 1, true) then
    return server.call(command, unpack(args))
  end
  dirty = true
  for i, arg in ipairs(args) do args[i] = tostring(arg) end
  writes[#writes + 1] = command .. ' ' .. table.concat(args, ' ')
  return command == 'SET' and {ok = 'OK'} or server.call(command, unpack(args))
end
function redis.pcall(...)
  local ok, reply = pcall(redis.call, ...)
  if ok then return reply end
  return {err = type(reply) == 'table' and reply.err or tostring(reply)}
end
local function script()
%s
end
local ok, reply = pcall(script)
if not ok then reply = 'failed: ' .. (type(reply) == 'table' and reply.err or tostring(reply)) end
return {reply or false, table.concat(writes, '\n')}`

// startScripts starts a server for scripts, and the maker of their calls.
func startScripts(t *testing.T) (*redis.Client, *Locks) {
	t.Helper()
	server := testredis.Start(t)
	client := redis.NewClient(testredis.Patient(&redis.Options{Addr: server.Addr()}))
	t.Cleanup(func() { client.Close() })
	connect := func(names.Identity) *redis.Client { return nil }
	l := New(Config{FenceRetention: 10 * time.Minute}, "p1", connect, hclog.NewNullLogger())
	t.Cleanup(l.Close)
	return client, l
}

// storedLock is what the upstream stores for a lock before a script runs.
type storedLock struct {
	now    time.Time
	full   bool
	lock   any    // text, nil for no key, a list, which is of the wrong type, or a sorted set
	ttl    int64  // of the lock's key, ms; -1 is none
	record any    // as lock
	token  string // the record's
}

// drawStored draws a state. Most differ little from those that a fast path serves.
func drawStored(t *rapid.T) storedLock {
	odds := rapid.SampledFrom([]int{0, 8, 32}).Draw(t, "odds")
	odd := func(what string) bool {
		return odds > 0 && rapid.IntRange(1, odds).Draw(t, "odd "+what) == 1
	}
	pick := func(what, usual string, others ...string) string {
		if !odd(what) {
			return usual
		}
		return rapid.SampledFrom(others).Draw(t, what)
	}
	micros := rapid.SampledFrom([]int64{0, 1, 999, 1000, 123_456, 999_999}).Draw(t, "µs")
	st := storedLock{now: time.Unix(1_790_000_000, 1000*micros), full: odd("memory")}
	now, second, clock := st.now.UnixMilli(), st.now.Unix(), st.now.UnixMicro()
	num := func(n int64) string { return strconv.FormatInt(n, 10) }
	waits := func(proxy string, ago int64, how string) string {
		return fmt.Sprintf("%s:%d:%s:%d", proxy, now-ago, how, now-2*ago)
	}

	states := []string{"held", "held", "held", "held", "freed", "released", "reserved", "shared",
		"shared", "shared"}
	state := rapid.SampledFrom(states).Draw(t, "state")
	usual := ""
	freed := state == "freed" // as UNLOCK leaves it
	if freed {
		state = "held"
	}
	expires := now + 30_000
	if odd("expiry") {
		expires = now + rapid.SampledFrom([]int64{-1, 0, 1, 1000}).Draw(t, "remaining")
	}
	written := num(expires)
	if odd("unit") {
		expires = (expires + 999) / 1000 * 1000
		written = num(expires / 1000)
	}
	st.token = pick("token", num(clock-60_000_000),
		"7", num(10*clock), "9999999999999999")
	if rapid.IntRange(1, 8).Draw(t, "token of now") == 1 {
		st.token = num(clock + rapid.Int64Range(-1, 1).Draw(t, "µs later"))
	}
	settles := pick("grace", "0", num(now-1), num(now), num(now+1500))
	waiting := "-"
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 1, 2}).Draw(t, "waiting proxies") {
		proxy := waits(pick("proxy", "p2", "p1", "p-3"),
			rapid.SampledFrom([]int64{0, 100, 999}).Draw(t, "seen"),
			rapid.SampledFrom([]string{"0", "0", "p0", "3", "s0", "l0", "a0"}).Draw(t, "how"))
		proxy = pick("entry", proxy, waits("p2", 1000, "0"), waits("p2", 100, "f0"), "p2:1:0:",
			fmt.Sprintf("p2:%d:0", now-100))
		waiting = strings.TrimPrefix(waiting+","+proxy, "-,")
	}
	session := pick("session", "0", "1")
	connections := pick("connections", connection1, connection1+"2", connection2+","+connection1,
		connection1+","+connection2, connection1+",-", connection2)
	number, client := pick("request", "1", "0", "2"), pick("client", "127.0.0.1:1", "-")
	owner := pick("owner", "", "o1", "o2", "o1\nsecond line", " held - \n")
	acquired := pick("acquired", num(now-20_000), num(expires-600_000), num(expires-600_001))
	switch state {
	case "released":
		expires, written, acquired, session, owner = 0, "0", "0", "0", ""
		connections, number, client = "-", "0", "-"
	case "reserved":
		connections, number, client, owner = pick("reserved for", "p1", "p2"), "0", "-", ""
	case "shared":
		acquired, session, connections, number, client, owner = "0", "0", "-", "0", "-", ""
	}
	record := strings.Join([]string{"v1", st.token, num(expires), written, settles, acquired,
		session, state, connections, number, client, waiting}, " ") + "\n" + owner
	st.record = record
	if state == "shared" {
		st.record = drawSharers(t, record, st.token, expires)
	}
	switch pick("record", "well-formed", "none", "list", "cut", "cut", "cut", "foreign") {
	case "none":
		st.record = nil
	case "list":
		st.record = []string{"a"}
	case "cut":
		end := rapid.OneOf(rapid.IntRange(72, 96), rapid.IntRange(0, 200)).Draw(t, "end")
		st.record = record[:end%len(record)]
	case "foreign":
		st.record = "not a record"
	}

	if state != "released" && !freed {
		usual = written
	}
	switch value := pick("lock", usual, "", written, num(now-1), num(now+5000), num(second-1),
		num(second+5), "1.79e+12", num(second)+".5", "another library's", "list", "0"); value {
	case "":
	case "list":
		st.lock = []string{"a"}
	default:
		st.lock = value
	}
	st.ttl = max(expires-now, 1)
	if odd("TTL") {
		st.ttl = rapid.SampledFrom([]int64{-1, 0, 1, 2, 3, 86_400_000}).Draw(t, "TTL")
	}
	return st
}

// drawSharers draws the record of a shared lock from its first line and its last token.
func drawSharers(t *rapid.T, line, token string, expires int64) []redis.Z {
	set := []redis.Z{{Score: math.Inf(-1), Member: line}}
	last, _ := strconv.ParseInt(token, 10, 64)
	for i := range rapid.Int64Range(1, 3).Draw(t, "holders") {
		owner := rapid.SampledFrom([]string{"", "o1", "two\nlines"}).Draw(t, "owner")
		if i > 0 {
			owner = ""
		}
		connection := rapid.SampledFrom([]string{connection1, connection2}).Draw(t, "connection")
		holder, score := strconv.FormatInt(last-i, 10), -float64(last-i)
		ends := expires - i*rapid.SampledFrom([]int64{0, 1000, 40_000}).Draw(t, "earlier")
		set = append(set,
			redis.Z{Score: score, Member: fmt.Sprintf("%s %d 0 %s %d 127.0.0.1:1\n%s", holder,
				expires-30_000, connection, i+1, owner)},
			redis.Z{Score: score, Member: fmt.Sprintf("=%s/%d", connection, i+1)},
			redis.Z{Score: float64(ends), Member: holder})
		if owner != "" {
			set = append(set, redis.Z{Score: score, Member: "@" + owner})
		}
	}
	return set
}

const connection1, connection2 = "0123456789abcdef-1", "fedcba9876543210-1"

// drawRequest draws a LOCK.
func drawRequest(t *rapid.T, key string) script.Request {
	ms := rapid.SampledFrom([]int{1, 999, 1000, 1001, 30_000, 86_400_000}).Draw(t, "timeout")
	limit := rapid.SampledFrom([]int64{-1, -1, -1, -1, 0, 2, 3}).Draw(t, "limit")
	return script.Request{
		Shared: limit >= 0, Limit: max(limit, 0),
		Key:        key,
		Timeout:    time.Duration(ms) * time.Millisecond,
		Connection: rapid.SampledFrom([]string{connection1, connection2}).Draw(t, "connection"),
		Number:     rapid.SampledFrom([]string{"1", "18446744073709551615"}).Draw(t, "number"),
		Client:     "127.0.0.1:2",
		Session:    rapid.Bool().Draw(t, "session"),
		Owner:      rapid.SampledFrom([]string{"", "o1", "two\nlines"}).Draw(t, "owner"),
	}
}

// emptyQueues lets all leave that wait.
func (l *Locks) emptyQueues() {
	qs := queue.New(l.common.Clients.Ways)
	l.queues, l.releases.queues, l.locking.queues = qs, qs, qs
}

// join puts waiters into a queue. turn says that it is this proxy's turn: one before them has been
// given the lock. Otherwise it is another's.
func (l *Locks) join(as names.Identity, turn bool, rs ...script.Request) {
	if turn {
		l.queues.Join(script.Request{Key: rs[0].Key}, as, 0, time.Now())
	}
	for _, r := range rs {
		l.queues.Join(r, as, 0, time.Now())
	}
	if turn {
		l.queues.Of(names.Lock{DB: as.DB, Key: rs[0].Key}).Offer(as, true, time.Now()).End(
			queue.Released{Done: true, Token: 1, Given: 1}, time.Now())
	}
}

// drawCall draws a LOCK or an UNLOCK by a client that may hold the lock of st, and its waiters.
func drawCall(t *rapid.T, l *Locks, st storedLock) script.Call {
	l.emptyQueues()
	id := names.Lock{Key: "{job}" + rapid.SampledFrom([]string{"", " 1"}).Draw(t, "key")}
	compete := rapid.IntRange(0, 4).Draw(t, "foreign") == 0
	if rapid.IntRange(0, 2).Draw(t, "LOCK") == 0 {
		mode := rapid.SampledFrom([]string{script.ModeTry, script.ModeFirst}).Draw(t, "mode")
		if compete {
			l.queues.Of(id).SawForeign(false, time.Now())
		}
		run, err := l.beginTry(id.DB, lockRequests{drawRequest(t, id.Key)}, trial{mode: mode})
		if err != nil {
			t.Fatal(err)
		}
		return run.Call
	}
	if n := rapid.IntRange(0, 2).Draw(t, "waiters"); n > 0 {
		as := names.Identity{DB: rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "waiter's database")}
		l.join(as, n > 1, drawRequest(t, id.Key))
	}
	if compete {
		l.queues.Of(id).SawForeign(false, time.Now())
	}
	last, _ := strconv.ParseInt(st.token, 10, 64)
	p := rapid.SampledFrom([]script.Proof{
		{Kind: "token", Value: st.token}, {Kind: "token", Value: st.token}, {Kind: "token", Value: "1"}, {Kind: "token", Value: st.token + "0"},
		{Kind: "token", Value: strconv.FormatInt(last-1, 10)},
		{Kind: "connection", Value: connection1}, {Kind: "connection", Value: connection1}, {Kind: "connection", Value: connection2},
		{Kind: "connection", Value: "0123456789abcdef-"}, {Kind: "request", Value: connection1 + "/1"},
		{Kind: "given", Value: connection1 + "/" + st.token}, {Kind: "reserved", Value: "p1"}, {Kind: "force", Value: ""},
	}).Draw(t, "proof")
	handOver := rapid.IntRange(0, 4).Draw(t, "hands over") > 0
	c := l.beginRelease(nil, id, names.Identity{}, p, handOver).Call
	_, shares := st.record.([]redis.Z)
	// Holder.SharedToken
	if shares && p.Kind == "connection" && rapid.Bool().Draw(t, "knows its token") {
		c.Args[0] = strings.TrimSuffix(c.Args[0], "- 0") + st.token + " 0"
		if c.Args[4] == "none" {
			c.Args[3] = st.token
		}
	}
	return c
}

// run runs c on a state. It returns the reply, what was written, and what the keys hold then.
func (st storedLock) run(
	t *rapid.T, client *redis.Client, s *redis.Script, c script.Call,
) [3]string {
	ctx := t.Context()
	setup := client.TxPipeline()
	setup.FlushAll(ctx)
	st.store(ctx, setup, c)
	if _, err := setup.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	var args []any
	for _, arg := range c.Args {
		args = append(args, arg)
	}
	got, err := s.Run(ctx, client, c.Keys[:], append(args, st.circumstances()...)...).Slice()
	if err != nil {
		t.Fatal(err)
	}
	return [3]string{fmt.Sprint(got[0]), fmt.Sprint(got[1]), dumps(t, client, c.Keys[:])}
}

// store sets the keys of c.
func (st storedLock) store(ctx context.Context, on redis.Pipeliner, c script.Call) {
	for i, value := range []any{st.lock, st.record} {
		switch value := value.(type) {
		case string:
			on.Set(ctx, c.Keys[i], value, time.Hour)
		case []string:
			on.RPush(ctx, c.Keys[i], value)
		case []redis.Z:
			on.ZAdd(ctx, c.Keys[i], value...)
			on.Expire(ctx, c.Keys[i], time.Hour)
		}
	}
}

// circumstances are the last arguments of recordedRun.
func (st storedLock) circumstances() []any {
	full := map[bool]string{true: "full"}[st.full]
	return []any{st.now.Unix(), st.now.Nanosecond() / 1000, st.ttl, full}
}

// dumps returns what keys hold.
func dumps(t *rapid.T, client *redis.Client, keys []string) (all string) {
	for _, key := range keys {
		dump, err := client.Dump(t.Context(), key).Result()
		if err != nil && err != redis.Nil {
			t.Fatal(err)
		}
		all += fmt.Sprintf("%q ", dump)
	}
	return all
}

// Whatever is stored, a fast path answers and writes the same as the long one. If it leaves the
// lock to the long path, it has written nothing.
func TestFastPathProperty(t *testing.T) {
	client, l := startScripts(t)
	recorded, alone := map[*script.Script]*redis.Script{}, map[*script.Script]*redis.Script{}
	for s, fast := range map[*script.Script]*script.Script{
		script.LockScript:   script.NewScript("fast_lock", "fast_share"),
		script.UnlockScript: script.NewScript("fast_unlock", "fast_leave"),
	} {
		recorded[s] = redis.NewScript(strings.Replace(recordedRun, "%s", s.Source, 1))
		alone[s] = redis.NewScript(strings.Replace(recordedRun, "%s", fast.Source, 1))
	}

	acquired, released, handedOver, othersWait := 0, 0, 0, 0 // by the fast paths
	shared, left := 0, 0                                     // by those of shared locks
	check := func(t *rapid.T) {
		for range 40 {
			st := drawStored(t)
			c := drawCall(t, l, st)
			got := st.run(t, client, recorded[c.Script], c)
			if _, shares := st.record.([]redis.Z); shares {
				switch served := st.run(t, client, alone[c.Script], c); {
				case served[0] == "<nil>" && served[1] != "":
					t.Fatalf("%s %q of %+v was left to the long path, with %q written",
						c.Script.Name, c.Args, st, served[1])
				case strings.HasPrefix(served[0], "[2 "):
					left++
				case strings.HasPrefix(served[0], "["):
					shared++
				}
			}
			fast := c.Args
			c.Args = [5]string(slices.Concat(c.Args[:2], script.NoFastPath[:]))
			want := st.run(t, client, recorded[c.Script], c)

			n, err := strconv.ParseInt(got[0], 10, 64)
			switch {
			case strings.Contains(got[0], "OOM") && strings.Contains(want[0], "OOM"):
				got[0] = want[0] // they name different lines
			case err != nil: // the long path's
			case c.Script == script.LockScript:
				acquired++
				got[0] = fmt.Sprint(script.LockScript.ExpandShortReply(n))
			default:
				released++
				if n > 1 {
					handedOver++
				}
				if n > 1 && strings.Contains(got[1], " p2:") {
					othersWait++
				}
				// The long path also says which client had the lock.
				got[0] = strings.Trim(fmt.Sprint(script.UnlockScript.ExpandShortReply(n)), "]")
				want[0] = want[0][:min(len(got[0]), len(want[0]))]
			}
			if got != want {
				t.Fatalf("%s %q of %+v\ngot  %q\nlong %q", c.Script.Name, fast, st, got, want)
			}
		}
	}
	// Of the rarest there are 10 in a round, give or take chance.
	served := func() int { return min(acquired, released, handedOver, othersWait, shared, left) }
	for round := 0; round == 0 || round < 10 && served() == 0; round++ {
		rapid.Check(t, check)
	}
	if served() == 0 {
		t.Errorf("the fast paths have served %d LOCKs, and %d UNLOCKs, %d of them with a waiter, "+
			"%d while other proxies wait; of shared locks %d LOCKs and %d UNLOCKs", acquired,
			released, handedOver, othersWait, shared, left)
	}
}

// A question takes nothing as of the millisecond of its end: nobody may wait for its answer then.
func TestAQuestionTakesNothingAtItsEnd(t *testing.T) {
	client, l := startScripts(t)
	recorded := redis.NewScript(strings.Replace(recordedRun, "%s", script.LockScript.Source, 1))
	st := storedLock{now: time.Unix(1_790_000_000, 0), ttl: -2}
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.Int64Range(-1, 1).Draw(t, "ms")
		c := l.locking.Scripts.Lock(drawRequest(t, "{job}"), script.ModeFirst,
			l.queues.WaitsAs("{job}", false, false), 0, nil, st.now.UnixMilli()+before)
		got := st.run(t, client, recorded, c)
		if late := before <= 0; (got[1] == "") != late || strings.Contains(got[0], "LATE") != late {
			t.Fatalf("%d ms before its end it answers %q and writes %q", before, got[0], got[1])
		}
	})
}
