//go:build !race

package hints

import (
	"bufio"
	"context"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/names"
	"lockproxy/internal/test/wire"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/search"
)

// listeningToWaits listens to a channel for d of virtual time, and returns when it has asked for the
// channel. answer is what it is told each time.
func listeningToWaits(
	t *testing.T, d time.Duration, answer func(nth int) string,
) (asked []time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		play := func(nc net.Conn) {
			for in := bufio.NewReader(nc); ; {
				words, err := wire.ReadCommand(in)
				if err != nil {
					return
				}
				if words[0] == "hello" {
					nc.Write([]byte("*0\r\n"))
					continue
				}
				if !slices.Equal(words, []string{"ssubscribe", "waits"}) {
					t.Errorf("it asks %q", words)
					return
				}
				asked = append(asked, time.Since(began))
				nc.Write([]byte(answer(len(asked))))
			}
		}
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Protocol: 2,
			DisableIdentity: true, MaxRetries: -1,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe()
				go play(there) // ends with here
				return here, nil
			}})
		defer client.Close()
		jobs := &background.Jobs{Timers: background.NewTimers(), Log: hclog.NewNullLogger(),
			Scripts: script.NewMaker(script.Config{Proxy: "p", Cluster: true}),
			Clients: background.NewClients(func(names.Identity) *redis.Client { return client }, true)}
		defer jobs.Timers.Close()
		registry, qs := held.NewRegistry(func(*held.Lock) {}), queue.New(&background.Ways{})
		w := NewNotifications(qs, held.NewSessions(jobs, registry, &names.Filter{}, nil),
			search.New(jobs, search.Refuse, qs, registry, nil, nil), nil)
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		w.listenToWaits(ctx, names.Identity{}, "waits")
	})
	return asked
}

const (
	heard = "*3\r\n$10\r\nssubscribe\r\n$5\r\nwaits\r\n:1\r\n"
	moved = "*3\r\n$12\r\nsunsubscribe\r\n$5\r\nwaits\r\n:0\r\n"
)

// A channel whose slot has moved is asked for again at once.
func TestWaitsAreHeardBehindAMove(t *testing.T) {
	asked := listeningToWaits(t, time.Hour, func(nth int) string {
		if nth == 1 {
			return heard + moved
		}
		return heard
	})
	if len(asked) != 2 || asked[1] != 0 {
		t.Errorf("it has asked at %v", asked)
	}
}

// A channel that the user may not use is asked for less and less often, and heard once the user may.
func TestWaitsThatMayNotBeHeard(t *testing.T) {
	for _, refusal := range []string{"-NOPERM no channels\r\n", "-WRONGPASS no\r\n", "-NOAUTH no\r\n"} {
		asked := listeningToWaits(t, time.Hour, func(nth int) string {
			if nth < 8 {
				return refusal
			}
			return heard
		})
		var seconds []int
		for _, at := range asked {
			seconds = append(seconds, int(at/time.Second))
		}
		if want := []int{0, 1, 3, 7, 15, 31, 61, 91}; !slices.Equal(seconds, want) {
			t.Errorf("%q: it has asked after %d s, want %d", refusal, seconds, want)
		}
	}
}

// A channel that was heard for a while, and may be heard no more, is asked for as if it were new.
func TestWaitsThatMayBeHeardNoMore(t *testing.T) {
	asked := listeningToWaits(t, time.Minute, func(nth int) string {
		if nth != 5 {
			return "-NOPERM no channels\r\n"
		}
		time.Sleep(3 * time.Second)
		return heard + "?\r\n" // no reply: the connection is of no use
	})
	var seconds []int
	for _, at := range asked {
		seconds = append(seconds, int(at/time.Second))
	}
	// The fifth time, after 15 s, it is heard for three. Then go-redis asks once by itself.
	if want := []int{0, 1, 3, 7, 15, 18, 18, 19, 21, 25, 33, 49}; !slices.Equal(seconds, want) {
		t.Errorf("it has asked after %d s, want %d", seconds, want)
	}
}

// A channel of a server that fails is asked for every second.
func TestWaitsOfAServerThatFails(t *testing.T) {
	asked := listeningToWaits(t, time.Hour, func(int) string { return "-ERR no\r\n" })
	if len(asked) < 3600 || len(asked) > 3610 {
		t.Errorf("it has asked %d times in an hour", len(asked))
	}
	asked = listeningToWaits(t, time.Hour, func(int) string { return "-ERR unknown command 'x'\r\n" })
	if len(asked) != 1 {
		t.Errorf("a server without the command was asked %d times", len(asked))
	}
}
