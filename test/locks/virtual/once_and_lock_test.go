//go:build !race

package virtual_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// A lock and a value of ONCE need different names. ONCE neither answers the timestamp of a lock nor
// makes anybody replace it, and DONE does not store over one. Whose lock it is keeps it.
func TestOnceOfALock(t *testing.T) {
	const isLock = "-WRONGTYPE Key is a lock (of LOCK): ONCE and DONE need a name of their own\r\n"
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			for i, lock := range []string{"LOCK k%d 600", "LOCK k%d 600 SHARED", "LOCKALL 600 1 k%d"} {
				a, b, waiter := dial(0), dial(1), dial(1)
				key := fmt.Sprint("k", i)
				claim := proxytest.Token(t, b.Do("ONCE "+key+" 600"))
				waiter.Send("ONCE " + key + " 600 WAIT 0")
				synctest.Wait()
				held := proxytest.Token(t, a.Do(fmt.Sprintf(lock, i)))
				for _, once := range []string{"ONCE %s 600", "ONCE %s 600 EARLY 6000", "ONCE %s 600 WAIT 0"} {
					b.Expect(fmt.Sprintf(once, key), isLock)
				}
				b.Expect(done(key, claim, "text EX 60"), isLock)
				a.Expect("GET "+key, b.Do("GET "+key))
				b.Expect(fmt.Sprintf("DONE %s %d", key, claim), ":1\r\n") // it gives up
				waiter.WantReply(isLock)
				a.Expect(proxytest.Unlock(key, held), ":1\r\n")
				next := proxytest.Token(t, b.Do("ONCE "+key+" 600"))
				b.Expect(done(key, next, "text"), ":1\r\n")
			}
		})
	})
}

// A value of 10 or 13 digits is a value.
func TestOnceOfDigits(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b := dial(0), dial(1)
			for i, value := range []string{"1795830572734", "9999999999999", "1795830572", "0000000000"} {
				key := fmt.Sprint("k", i)
				held := a.Lock(key + " 600") // there was a lock of that name
				a.Expect(proxytest.Unlock(key, held), ":1\r\n")
				claim := proxytest.Token(t, a.Do("ONCE "+key+" 600"))
				b.Send("ONCE " + key + " 600 WAIT 0")
				synctest.Wait()
				a.Expect(done(key, claim, value), ":1\r\n")
				want := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
				b.WantReply(want)
				a.Expect("ONCE "+key+" 600", want)
				a.Expect("ONCE "+key+" 600 EARLY 60", want)
				a.Expect("DEL "+key, ":1\r\n")
				claim = proxytest.Token(t, a.Do("ONCE "+key+" 600"))
				a.Expect("SET "+key+" "+value, "+OK\r\n")
				a.Expect(done(key, claim, value), ":1\r\n") // it is stored over no lock
			}
		})
	})
}

// LOCK of a name that ONCE uses, for a value that DONE has stored, is told so: it is no lock of
// another library.
func TestLockOfAValue(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		withTwo(t, func(t *testing.T, dial func(int) *proxytest.Conn) {
			a, b := dial(0), dial(1)
			for i, stored := range []string{"text", "text EX 600", "9999999999999 EX 600"} {
				key := fmt.Sprint("k", i)
				a.Expect(done(key, proxytest.Token(t, a.Do("ONCE "+key+" 600")), stored), ":1\r\n")
				for range 2 {
					for _, c := range []*proxytest.Conn{a, b} {
						for _, lock := range []string{"LOCK k 600", "LOCK k 600 WAIT 5", "LOCK k 600 SHARED",
							"LOCK k 600 WAIT 0 OWNER o", "LOCKALL 600 2 free k OWNER o",
							"LOCKALL 600 2 k free WAIT 0", "LOCKALL 600 3 another k free WAIT 5"} {
							got := c.Do(strings.Replace(lock, " k ", " "+key+" ", 1))
							if !strings.HasPrefix(got, "-WRONGTYPE Key is used by ONCE: LOCK needs ") {
								t.Errorf("of %q: %s: %q", stored, lock, got)
							}
						}
					}
				}
				a.Expect("GET "+key, b.Do("GET "+key))
			}
			a.Expect("SET other held EX 600", "+OK\r\n")
			a.Expect("LOCK other 600", "$-1\r\n")
			a.Expect("SET data held", "+OK\r\n")
			a.Expect("LOCK data 600", "-WRONGTYPE …")
			a.Expect("LOCKALL 600 2 free other", "$-1\r\n")
			a.Expect("LOCKALL 600 2 free data", "-WRONGTYPE Key holds …")
		})
	})
}
