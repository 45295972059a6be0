//go:build !race

package virtual_test

import (
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// While Redis is silent a client that asks for its place is told so, and not that another client
// holds the lock. The client keeps its place.
func TestAPlaceWhileRedisIsSilent(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store, p := virtualtest.StartBoth(t)
		holder, first, second := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
			proxytest.Dial(t, p.Addr)
		held := holder.Lock("job 600")
		for _, c := range []*proxytest.Conn{first, second} {
			c.Expect("LOCK job 60 PLACE 60", "$-1\r\n")
			time.Sleep(time.Second)
		}
		store.Pause()
		time.Sleep(10 * time.Second)
		for range 5 {
			first.Expect("LOCK job 60 PLACE 60", "-UPSTREAM …")
			second.Expect("LOCK job 60 PLACE 60", "-UPSTREAM …")
			time.Sleep(time.Second)
		}
		store.Resume()
		time.Sleep(10 * time.Second)
		for _, c := range []*proxytest.Conn{first, second} {
			c.Expect("LOCK job 60 PLACE 60", "$-1\r\n")
		}
		holder.Expect(proxytest.Unlock("job", held), ":1\r\n")
		time.Sleep(time.Second)
		second.Expect("LOCK job 60 PLACE 60", "$-1\r\n")
		first.Lock("job 60 PLACE 60")
	})
}
