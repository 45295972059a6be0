//go:build !race

package virtual_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// LOCKTOP and LOCKLOG also have the locks of clients that know no LOCK: who took them, and how long
// others asked for them again and again.
func TestLockTopAndLogOfForeignLocks(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		ask := proxytest.GoRedis(t, p.Addr)
		first, second := proxytest.GoRedis(t, p.Addr), proxytest.GoRedis(t, p.Addr)
		first.Do(proxytest.Ctx, "CLIENT", "SETNAME", "first")
		second.Do(proxytest.Ctx, "CLIENT", "SETNAME", "second")
		const job, short = "theirs", "short"
		first.SetNX(proxytest.Ctx, job, "one", time.Minute)
		for range 5 {
			if got := second.SetNX(proxytest.Ctx, job, "two", time.Minute).Val(); got {
				t.Fatal("two clients hold the lock")
			}
			time.Sleep(60 * time.Millisecond)
		}
		first.Del(proxytest.Ctx, job)
		time.Sleep(time.Millisecond) // events of one moment have no order
		second.SetNX(proxytest.Ctx, job, "two", time.Minute)
		time.Sleep(time.Millisecond)
		second.SetNX(proxytest.Ctx, short, "two", 50*time.Millisecond)
		time.Sleep(60 * time.Millisecond)
		reply, err := ask.Do(proxytest.Ctx, "LOCKTOP", "COUNT", 1).Result()
		top := proxytest.AsMaps(t, reply, err)[0]
		blame, _ := top["blame"].(map[any]any)
		wait := top["wait_ms"].(int64)
		if top["key"] != job || top["acquired"] != int64(2) || top["waits"] != int64(1) || wait < 300 ||
			wait > 5000 || top["longest_wait_ms"] != wait || len(blame) != 1 || blame["first"] != wait {
			t.Errorf("%v", top)
		}
		reply, err = ask.Do(proxytest.Ctx, "LOCKLOG").Result()
		var log []string
		for _, e := range proxytest.AsMaps(t, reply, err) {
			log = append(log, fmt.Sprint(e["event"], " ", e["key"], " ", e["owner"], " ", e["token"]))
			if waited := e["wait_ms"].(int64) >= 300; waited != (e["key"] == job &&
				e["event"] == "acquired" && e["owner"] == "second") || e["client"] == "" {
				t.Errorf("%v", e)
			}
		}
		want := "expired short second <nil>; acquired short second <nil>; acquired theirs second " +
			"<nil>; released theirs first <nil>; acquired theirs first <nil>"
		if got := strings.Join(log, "; "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// A foreign lock is known in the database in which it was taken, also if the SELECT has no reply
// yet when it is asked for.
func TestForeignLockBehindASelect(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		first, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		first.Send("SELECT 1", "SET theirs one NX PX 60000")
		for range 2 {
			first.WantReply("+OK\r\n")
		}
		first.Expect("LOCKLOG", "*1\r\n…")
		first.Expect("SELECT 0", "+OK\r\n")
		first.Expect("LOCKLOG", "*0\r\n")

		waiter.Expect("SELECT 1", "+OK\r\n")
		waiter.Send("LOCK theirs 60 WAIT 0")
		time.Sleep(time.Second)
		began := time.Now()
		first.Send("SELECT 1", "DEL theirs")
		proxytest.Token(t, waiter.Reply())
		if took := time.Since(began); took > 0 {
			t.Errorf("the waiter has the lock after %v", took)
		}
	})
}

// A wait that ends without the lock is no event of LOCKLOG, whose events are of holders.
func TestLockLogHasHolders(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		c.Lock("job 30 OWNER anna")
		other.Expect("LOCK job 30 WAIT 0.05", "$-1\r\n")
		reply, err := proxytest.GoRedis(t, p.Addr).Do(proxytest.Ctx, "LOCKLOG").Result()
		if list := proxytest.AsMaps(t, reply, err); len(list) != 1 || list[0]["owner"] != "anna" {
			t.Errorf("%v", list)
		}
	})
}

// A claim says which value its holder makes. The claims of values of one shape have one, too.
func TestLockTopOfClaims(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		proxytest.Token(t, c.Do("ONCE report:7 30"))
		proxytest.Token(t, c.Do("ONCE report:8 30"))
		proxytest.Token(t, c.Do("ONCE report:9 30"))
		top := func(args ...any) []map[string]any {
			reply, err := proxytest.GoRedis(t, p.Addr).Do(proxytest.Ctx, args...).Result()
			return proxytest.AsMaps(t, reply, err)
		}
		made := map[any]bool{}
		for _, l := range top("LOCKTOP") {
			made[l["makes"]] = true
		}
		if len(made) != 3 || !made["report:7"] || !made["report:8"] || !made["report:9"] {
			t.Errorf("they make %v", made)
		}
		shapes := top("LOCKTOP", "SHAPES")
		if len(shapes) != 1 || shapes[0]["key"] != "report:*:once:*" {
			t.Errorf("shapes: %v", shapes)
		}
	})
}

// LOCKTOP names the locks that cost most and the holders that others waited for, LOCKLOG what
// happened; also for waits that go on. SHAPES merges them.
func TestLockTopAndLog(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		ask := proxytest.GoRedis(t, p.Addr)
		holder, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		holder.Lock("order:17 30 OWNER anna")
		holder.Lock("order:18 30")
		holder.Lock("quiet 30")
		holder.Expect("UNLOCK quiet", ":1\r\n")
		waiter.Expect("LOCK order:18 30", "$-1\r\n")
		waiter.Send("LOCK order:17 30 WAIT 20 OWNER bert")
		proxytest.AwaitWaiters(t, p, "order:17", 1)
		time.Sleep(333 * time.Millisecond) // between two polls

		top := func(args ...any) []map[string]any {
			t.Helper()
			reply, err := ask.Do(proxytest.Ctx, append([]any{"LOCKTOP"}, args...)...).Result()
			return proxytest.AsMaps(t, reply, err)
		}
		list := top()
		if len(list) != 3 || list[0]["key"] != "order:17" || list[0]["waits"] != int64(1) ||
			list[0]["acquired"] != int64(1) {
			t.Fatalf("%v", list)
		}
		waited, longest := list[0]["wait_ms"].(int64), list[0]["longest_wait_ms"].(int64)
		blame := list[0]["blame"].(map[any]any)
		if waited < 250 || waited > 5000 || longest < waited || len(blame) != 1 ||
			blame["anna"] != list[0]["wait_ms"] || list[0]["hold_ms"].(int64) < 300 {
			t.Errorf("%v", list[0])
		}
		if list := top("COUNT", 1, "BY", "count"); len(list) != 1 || list[0]["key"] != "order:18" ||
			list[0]["refused"] != int64(1) {
			t.Errorf("by count: %v", list)
		}
		shapes := top("SHAPES", "BY", "hold")
		if len(shapes) != 2 || shapes[0]["key"] != "order:*" || shapes[0]["acquired"] != int64(2) {
			t.Errorf("shapes: %v", shapes)
		}

		holder.Expect("UNLOCK order:17", ":1\r\n")
		waiter.Reply()
		log := func(args ...any) (text string) {
			t.Helper()
			reply, err := ask.Do(proxytest.Ctx, append([]any{"LOCKLOG"}, args...)...).Result()
			for _, e := range proxytest.AsMaps(t, reply, err) {
				text += fmt.Sprintf("%s %s %s; ", e["event"], e["key"], e["owner"])
				if ms := e["at_ms"].(int64); time.Since(time.UnixMilli(ms)).Abs() > time.Minute {
					t.Errorf("at %d", ms)
				}
			}
			return text
		}
		want := "acquired order:17 bert; released order:17 anna; "
		if got := log("COUNT", 2); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := log("order:17"); got != want+"acquired order:17 anna; " {
			t.Errorf("of one lock: %q", got)
		}
		if got := log("quiet", "COUNT", 1); got != "released quiet ; " {
			t.Errorf("of another lock: %q", got)
		}

		// Byte for byte, and in RESP2.
		other := proxytest.Dial(t, p.Addr)
		other.Expect("LOCKLOG none", "*0\r\n")
		other.Expect("SELECT 3", "+OK\r\n")
		other.Expect("LOCKTOP", "*0\r\n")
		other.Expect("LOCKLOG", "*0\r\n")
		for command, err := range map[string]string{
			"LOCKTOP COUNT":       "-ERR syntax error",
			"LOCKLOG a COUNT 3 4": "-ERR wrong number of arguments",
		} {
			if got := other.Do(command); !strings.HasPrefix(got, err) {
				t.Errorf("%s: %q", command, got)
			}
		}
	})
}

// LOCKINFO's lists of holders and waiters, with another proxy's.
func TestLockInfoLists(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		q := proxytest.Start(t, server.URL(), nil)
		ask := proxytest.GoRedis(t, p.Addr)
		info := func(args ...any) []map[string]any {
			t.Helper()
			reply, err := ask.Do(proxytest.Ctx, append([]any{"LOCKINFO", "job"}, args...)...).Result()
			return proxytest.AsMaps(t, reply, err)
		}
		if len(info("holders")) != 0 || len(info("WAITERS")) != 0 {
			t.Error("a free lock has holders or waiters")
		}
		holder := proxytest.Dial(t, p.Addr)
		token := holder.Lock("job 30 SESSION OWNER anna")
		list := info("HOLDERS")
		if len(list) != 1 || list[0]["token"] != token || list[0]["owner"] != "anna" ||
			list[0]["client"] != holder.LocalAddr().String() || list[0]["mode"] != "exclusive" ||
			list[0]["session"] != int64(1) || len(list[0]) != 9 ||
			list[0]["expires_ms"].(int64)-list[0]["acquired_ms"].(int64) < 30000 {
			t.Errorf("%v", list)
		}
		var clients []*proxytest.Conn
		for i, options := range []string{"WAIT 20 OWNER bert", "WAIT 0", "WAIT 5"} {
			c := proxytest.Dial(t, p.Addr)
			c.Send("LOCK job 30 " + options)
			proxytest.AwaitWaiters(t, p, "job", i+1)
			clients = append(clients, c)
		}
		proxytest.Dial(t, q.Addr).Send("LOCK job 30 WAIT 20")
		proxytest.AwaitWaiters(t, q, "job", 1)
		time.Sleep(300 * time.Millisecond)
		list = info("WAITERS")
		if len(list) != 4 {
			t.Fatalf("%v", list)
		}
		for i, c := range clients {
			w := list[i]
			if w["client"] != c.LocalAddr().String() || w["mode"] != "exclusive" ||
				time.Since(time.UnixMilli(w["since_ms"].(int64))).Abs() > 10*time.Second {
				t.Errorf("%v", w)
			}
		}
		since, until := list[0]["since_ms"].(int64), list[0]["until_ms"].(int64)
		if list[0]["owner"] != "bert" || until-since < 19990 || until-since > 20010 ||
			list[1]["until_ms"] != nil || list[3]["proxy"] == "" || list[3]["since_ms"] == nil {
			t.Errorf("%v", list)
		}
		ask.Set(proxytest.Ctx, "data", "x", 0)
		holder.Expect("LOCKINFO data WAITERS", "-WRONGTYPE…")
		holder.Expect("LOCKINFO job WAITERS x", "-ERR wrong number of arguments…")
	})
}
