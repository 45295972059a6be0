//go:build !race

package virtual_test

// With --park the nil of SET key value NX PX is delayed, and the lock given in order of arrival.

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// parkFor is for tests that see the end of a delay, parkLong for those whose clients are served
// before, on a busy machine too.
const (
	parkFor  = 600 * time.Millisecond
	parkLong = time.Minute
)

func startParking(t *testing.T, park time.Duration) (*virtualtest.Store, *proxytest.Proxy) {
	server := virtualtest.StartStore(t)
	return server, proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Park, cfg.ParkKeys = park, "job*"
	})
}

// answered is a request's reply, and after how long it came.
func answered(c *proxytest.Conn, request string) (string, time.Duration) {
	began := time.Now()
	return c.Do(request), time.Since(began)
}

func TestParkDelaysNil(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := startParking(t, parkFor)
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		direct := proxytest.GoRedis(t, server.Addr())
		direct.SetNX(proxytest.Ctx, "job:unseen", "x", time.Minute)
		direct.Set(proxytest.Ctx, "job:data", "x", 0)
		a.Expect("SET job a NX PX 60000", "+OK\r\n")
		a.Expect("SET other a NX PX 60000", "+OK\r\n")
		a.Lock("job:LOCK 60")
		for request, delayed := range map[string]bool{
			"SET job b NX PX 60000":      true,
			"set job b ex 60 nx":         true,
			"SET job:LOCK b NX PX 60000": true,

			"SET other b NX PX 60000":      false, // another pattern
			"SET job:unseen b NX PX 60000": false,
			"SET job:data b NX PX 60000":   false,
			"SET job b NX":                 false,
			"SETNX job b":                  false,
			fmt.Sprint("SET job b NX PXAT ", time.Now().Unix()*2e3): false,
		} {
			got, took := answered(b, request)
			if got != "$-1\r\n" && got != ":0\r\n" {
				t.Errorf("%s: %q", request, got)
			}
			if delayed && (took < parkFor || took > parkFor+300*time.Millisecond) ||
				!delayed && took > parkFor/2 {
				t.Errorf("%s: answered after %v", request, took)
			}
		}
		// In RESP3, and in a transaction.
		b.Do("HELLO 3")
		if got, took := answered(b, "SET job b NX PX 60000"); got != "_\r\n" || took < parkFor {
			t.Errorf("RESP3: %q after %v", got, took)
		}
		b.Expect("MULTI", "+OK\r\n")
		b.Expect("SET job b NX PX 60000", "+QUEUED\r\n")
		if got, took := answered(b, "EXEC"); got != "*1\r\n_\r\n" ||
			took > parkFor/2 {
			t.Errorf("EXEC: %q after %v", got, took)
		}
		if got, took := answered(b, "SET job b NX PX 0"); got[0] != '-' ||
			took > parkFor/2 {
			t.Errorf("an error: %q after %v", got, took)
		}
	})
}

// Another command on the connection ends the delay at once.
func TestParkEndsWithAnotherCommand(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := startParking(t, parkLong)
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		a.Expect("SET job a NX PX 60000", "+OK\r\n")
		for _, later := range []time.Duration{0, 100 * time.Millisecond} {
			began := time.Now()
			b.Send("SET job b NX PX 60000")
			time.Sleep(later)
			b.Send("PING")
			for _, want := range []string{"$-1\r\n", "+PONG\r\n"} {
				if got := b.Reply(); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
			if took := time.Since(began); took > later+50*time.Millisecond {
				t.Errorf("answered after %v", took)
			}
		}
	})
}

// However the lock is released, those who are delayed get it at once, in order of arrival.
func TestParkGivesInOrder(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := startParking(t, parkLong)
		direct := proxytest.GoRedis(t, server.Addr())
		for name, free := range map[string]func(c *proxytest.Conn, key, name string){
			"DEL": func(c *proxytest.Conn, key, _ string) { c.Do("DEL " + key) },
			"EVAL": func(c *proxytest.Conn, key, name string) {
				c.DoWords("EVAL", compareAndDelete, "1", key, name)
			},
			"directly": func(_ *proxytest.Conn, key, _ string) { direct.Del(proxytest.Ctx, key) },
		} {
			virtualtest.Part(t, name, func(t *testing.T) {
				key := "job:" + name
				holder := proxytest.Dial(t, p.Addr)
				holder.Expect("SET "+key+" c0 NX PX 60000", "+OK\r\n")
				var line []*proxytest.Conn
				for i := range 3 {
					c := proxytest.Dial(t, p.Addr)
					c.Send(fmt.Sprintf("SET %s c%d NX PX 60000", key, i+1))
					line = append(line, c)
					time.Sleep(10 * time.Millisecond)
				}
				for i, c := range line {
					began := time.Now()
					free(holder, key, fmt.Sprint("c", i))
					if got := c.Reply(); got != "+OK\r\n" {
						t.Fatalf("client %d: %q", i, got)
					}
					limit := 50 * time.Millisecond
					if name == "directly" {
						limit = 300 * time.Millisecond // it asks by itself, every 100 to 125 ms
					}
					if took := time.Since(began); took > limit {
						t.Errorf("client %d: given after %v", i, took)
					}
					if got := direct.Get(proxytest.Ctx, key).Val(); got != fmt.Sprint("c", i+1) {
						t.Errorf("the lock is %s's", got)
					}
					holder = c
				}
			})
		}
		virtualtest.Part(t, "LOCK", func(t *testing.T) {
			holder, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			holder.Lock("job:LOCK 60")
			other.Send("SET job:LOCK x NX PX 60000")
			time.Sleep(50 * time.Millisecond)
			began := time.Now()
			holder.Expect("UNLOCK job:LOCK", ":1\r\n")
			if got, took := other.Reply(), time.Since(began); got != "+OK\r\n" ||
				took > 50*time.Millisecond {
				t.Errorf("%q after %v", got, took)
			}
		})
		virtualtest.Part(t, "the TTL ends", func(t *testing.T) {
			holder, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			holder.Expect("SET job:ttl c0 NX PX 200", "+OK\r\n")
			if got, took := answered(other, "SET job:ttl x NX PX 60000"); got != "+OK\r\n" ||
				took > 260*time.Millisecond {
				t.Errorf("%q after %v", got, took)
			}
		})
	})
}

// A client that was delayed and refused, and asks again soon, has its place before those who came
// later.
func TestParkKeepsThePlace(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		const park = 4 * parkFor
		_, p := startParking(t, park)
		holder, first, second := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
			proxytest.Dial(t, p.Addr)
		holder.Expect("SET job c0 NX PX 60000", "+OK\r\n")
		first.Send("SET job c1 NX PX 60000")
		time.Sleep(park / 2)
		second.Send("SET job c2 NX PX 60000")
		first.WantReply("$-1\r\n")
		first.Send("SET job c1 NX PX 60000")
		time.Sleep(park / 8)
		holder.Do("DEL job")
		first.WantReply("+OK\r\n")
		second.WantReply("$-1\r\n")
	})
}

// A client that goes while it is delayed never keeps the lock, and delays nobody behind it.
func TestParkedClientGoes(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := startParking(t, parkLong)
		direct := proxytest.GoRedis(t, server.Addr())
		for i := range 10 {
			key := fmt.Sprint("job:", i)
			holder, gone, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
				proxytest.Dial(t, p.Addr)
			holder.Expect("SET "+key+" c0 NX PX 60000", "+OK\r\n")
			gone.Send("SET " + key + " gone NX PX 60000")
			time.Sleep(10 * time.Millisecond)
			other.Send("SET " + key + " other NX PX 60000")
			time.Sleep(10 * time.Millisecond)
			if i%2 == 0 {
				gone.Close()
				time.Sleep(10 * time.Millisecond)
				holder.Do("DEL " + key)
			} else {
				holder.Send("DEL " + key)
				gone.Close()
			}
			if got := other.Reply(); got != "+OK\r\n" {
				// The one that left may have been told a moment before it went.
				if value := direct.Get(proxytest.Ctx, key).Val(); i%2 == 0 || value != "gone" {
					t.Errorf("%q, and the lock is %q", got, value)
				}
			}
		}
	})
}

// One that was not the first in line, and so has not asked Redis before, keeps no lock either.
func TestParkedClientGoesBehindAnother(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := startParking(t, parkLong)
		direct := proxytest.GoRedis(t, server.Addr())
		for i := range 5 {
			key := fmt.Sprint("job:", i)
			holder, first, gone := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
				proxytest.Dial(t, p.Addr)
			holder.Expect("SET "+key+" holder NX PX 60000", "+OK\r\n")
			first.Send("SET " + key + " first NX PX 60000")
			time.Sleep(20 * time.Millisecond)
			gone.Send("SET " + key + " gone NX PX 60000")
			time.Sleep(20 * time.Millisecond)
			direct.Del(proxytest.Ctx, key) // nothing tells the first
			gone.Close()
			first.WantReply("+OK\r\n")
		}
	})
}

// Nothing is parked that was not asked for.
func TestNoParkWithoutTheFlag(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		a.Expect("SET job a NX PX 60000", "+OK\r\n")
		for range 20 {
			if got, took := answered(b, "SET job b NX PX 60000"); got != "$-1\r\n" ||
				took > 50*time.Millisecond {
				t.Errorf("%s after %v", strings.TrimSpace(got), took)
			}
		}
	})
}

// compareAndDelete is how other libraries release a lock.
const compareAndDelete = `if redis.call("get",KEYS[1]) == ARGV[1] then	return redis.call("del",KEYS[1]) end return 0`
