//go:build !race

package hints

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/search"
)

const (
	own   = "lockproxy:wake:p"
	waits = "lockproxy:wake:{waits}"
)

// slotChannel is the channel of the slot of a lock.
func slotChannel(key string) string {
	return keyname.SlotChannel(keyname.SlotOf([]byte(key)), "p")
}

// heard reports whether messages about a lock come.
func (u *upstream) heardOf(key string) bool { return u.Listener.heard[u.place(key)].Load() }

// except is agrees, but for the requests that begin so.
func except(begin, answer string) func(request string) string {
	return func(request string) string {
		if strings.HasPrefix(request, begin) {
			return answer
		}
		return agrees(request)
	}
}

// The channels are repeated as long as a client waits, and for a while after. Then the connection
// ends.
func TestChannelsEnd(t *testing.T) {
	for name, refusal := range map[string]string{"": "", "a user without the right": "-NOPERM no"} {
		inBubble(t, false, func(u *upstream) {
			w := u.waits("job")
			u.Listen(names.Identity{User: "b"}, "job")
			u.opened()
			u.says("%0")
			asked := u.serves(60*time.Second, agrees)
			for _, channel := range []string{own, waits} {
				if n := count(asked, "SUBSCRIBE "+channel); n < 12 || n > 13 {
					t.Errorf("%s was asked for %d times in a minute", channel, n)
				}
			}
			if !u.heardOf("job") {
				t.Error("it is not heard")
			}
			w.End(nil)
			answer := agrees
			if refusal != "" {
				answer = except("UNSUBSCRIBE", refusal)
			}
			began := time.Now()
			for count(asked, "UNSUBSCRIBE") < 2 {
				asked = append(asked, u.serves(beatEvery, answer)...)
			}
			if u.heardOf("job") || u.subscriber != nil || len(u.channels) > 0 {
				t.Errorf("%s: it subscribes for nobody", name)
			}
			if waited := time.Since(began); waited > connIdle+2*beatEvery {
				t.Errorf("%s: it has ended after %v", name, waited)
			}
			u.ended()
			if len(u.conns) > 0 || len(u.calls) > 0 {
				t.Errorf("%s: %d connections", name, len(u.conns))
			}
		})
	}
}

// A channel is kept for half a minute after the last client has left.
func TestChannelsOutlastTheirClients(t *testing.T) {
	inBubble(t, true, func(u *upstream) {
		stays, leaves := u.waits("stays"), "leaves"
		for i := 0; u.place(leaves) != 0 || u.place("stays") == 0; i++ { // the first place is one
			leaves = fmt.Sprint("leaves", i)
		}
		u.waits(leaves).End(nil)
		u.opened()
		u.says("%0")
		asked := u.serves(channelIdle-beatEvery, agrees)
		if count(asked, "SUNSUBSCRIBE") > 0 || !u.heardOf(leaves) {
			t.Errorf("a channel is left too early: %q", asked)
		}
		asked = u.serves(connIdle+2*beatEvery, agrees)
		if !slices.Equal(slices.DeleteFunc(asked, func(one string) bool {
			return !strings.HasPrefix(one, "SUN")
		}), []string{"SUNSUBSCRIBE " + slotChannel(leaves)}) || u.heardOf(leaves) {
			t.Errorf("it has left %q", asked)
		}
		if !u.heardOf("stays") {
			t.Error("the other is not heard")
		}
		stays.End(nil)
		u.Conn.Close()
	})
}

// In a cluster a slot's channel is asked for when the first client waits there. One whose slot has
// moved is asked for again at once.
func TestChannelsOfSlots(t *testing.T) {
	inBubble(t, true, func(u *upstream) {
		u.waits("job")
		u.opened()
		u.says("%0")
		if n := count(u.serves(0, agrees), "SSUBSCRIBE"); n != 1 {
			t.Errorf("%d channels", n)
		}
		u.waits("job2")
		u.waits("{job}3")
		u.hears("SSUBSCRIBE " + slotChannel("job2"))
		if u.heardOf("job2") {
			t.Error("it is heard before it is confirmed")
		}
		u.says(agrees("SSUBSCRIBE " + slotChannel("job2")))
		if !u.heardOf("job") || !u.heardOf("job2") {
			t.Error("they are not heard")
		}
		u.says(agrees("SUNSUBSCRIBE " + slotChannel("job")))
		if u.heardOf("job") || !u.heardOf("job2") {
			t.Error("the moved slot is heard, or the other is not")
		}
		u.hears("SSUBSCRIBE " + slotChannel("job"))
		if !u.subscriber.owed[0].verifies {
			t.Error("session locks are not verified behind it")
		}
		u.says(agrees("SSUBSCRIBE " + slotChannel("job")))
		if !u.heardOf("job") {
			t.Error("it is not heard again")
		}
		u.Conn.Close()
		synctest.Wait()
		if u.heardOf("job") || u.heardOf("job2") {
			t.Error("they are heard without a connection")
		}
	})
}

// In a cluster each channel on which proxies tell who waits has a connection apart, which asks no
// other node for anything, as long as anybody waits.
func TestWaitsAreHeardApart(t *testing.T) {
	inBubbleWith(t, true, search.Refuse, func(u *upstream) {
		w := u.waits("job")
		conns, first := map[string]net.Conn{}, []string(nil)
		for range 4 {
			u.Conn = <-u.calls
			u.in = bufio.NewReader(u.Conn)
			first = append(first, u.next())
			conns[first[len(first)-1]] = u.Conn
		}
		for _, channel := range u.Listener.waits {
			u.Conn = conns["SSUBSCRIBE "+channel]
			if u.Conn == nil {
				t.Fatalf("it is asked for %q", first)
			}
			u.in = bufio.NewReader(u.Conn)
			u.says("*3", "$10", "ssubscribe", "$"+strconv.Itoa(len(channel)), channel, ":1")
			u.Close()
		}
		time.Sleep(minRetry)
		synctest.Wait()
		if len(u.calls) != 3 || conns["HELLO 3"] == nil {
			t.Errorf("%d are opened again, of %q", len(u.calls), first)
		}
		w.End(nil)
		conns["HELLO 3"].Close()
	})
}

// A node that is silent is heard no more, until a connection has its confirmation.
func TestASilentNodeIsNotHeard(t *testing.T) {
	inBubble(t, true, func(u *upstream) {
		u.waits("job")
		u.opened()
		u.says("%0")
		u.serves(3*connIdle, agrees)
		if !u.heardOf("job") {
			t.Fatal("it is not heard")
		}
		began := time.Now()
		u.ended()
		if waited := time.Since(began); u.heardOf("job") || waited > 2*connIdle+2*beatEvery {
			t.Errorf("it is heard after %v", waited)
		}
		u.opened()
		u.says("%0")
		u.serves(0, agrees)
		if !u.heardOf("job") {
			t.Error("it is not heard again")
		}
		u.Conn.Close()
	})
}

// Nodes that know no sharded channels are listened to on the one channel for all locks.
func TestNodesWithoutShardedChannels(t *testing.T) {
	inBubble(t, true, func(u *upstream) {
		u.waits("job")
		u.want("job")
		u.opened()
		u.says("%0")
		u.serves(0, except("SSUBSCRIBE", "-ERR unknown command 'SSUBSCRIBE', with args"))
		u.opened()
		u.says("%0")
		if asked := u.serves(0, agrees); count(asked, "SUBSCRIBE "+own) != 1 {
			t.Errorf("it has asked %q", asked)
		}
		if !u.heardOf("job") || !u.heardOf("other") {
			t.Error("it is not heard")
		}
		u.follows("job", true, true)
		u.Conn.Close()
	})
}

// A user of a cluster that may not use a channel is no sign that its nodes have no such channels.
func TestChannelsOfSlotsAreRefused(t *testing.T) {
	inBubble(t, true, func(u *upstream) {
		w := u.waits("job")
		u.opened()
		u.says("%0")
		u.serves(0, except("SSUBSCRIBE", "-NOPERM no channels"))
		if !u.Listener.sharded.Load() || u.subscriber != nil {
			t.Error("the nodes are taken for older ones, or the user for one that hears")
		}
		w.End(nil)
		u.Conn.Close()
	})
}

// A user that may not use the channels is tracked all the same, on the same connection, and another
// user subscribes.
func TestChannelsAreRefused(t *testing.T) {
	inBubble(t, false, func(u *upstream) {
		u.waits("job")
		u.want("job")
		u.opened()
		u.says("%0")
		u.serves(0, except("SUBSCRIBE "+own, "-NOPERM no channels"))
		if u.follows("job", true, true); u.heardOf("job") || u.subscriber != nil {
			t.Error("it is heard")
		}
		u.Listen(names.Identity{}, "job")
		if u.subscriber != nil {
			t.Error("it is asked again at once")
		}
		time.Sleep(channelsRetry)
		u.Listen(names.Identity{}, "job")
		if u.serves(time.Millisecond, agrees); !u.heardOf("job") {
			t.Error("it is not heard once it may be")
		}
		u.serves(2*connIdle, except("SUBSCRIBE "+own, "-NOPERM no channels"))
		if u.heardOf("job") || u.subscriber != nil {
			t.Error("it is heard when it may be no more")
		}
		tracks := u.Conn
		u.Listen(names.Identity{User: "b"}, "job")
		synctest.Wait()
		u.Conn = nil
		u.opened()
		u.says("%0")
		if asked := u.serves(0, agrees); count(asked, "SUBSCRIBE ") != 2 || !u.heardOf("job") {
			t.Errorf("it has asked %q", asked)
		}
		u.follows("job", true, true)
		u.Conn.Close()
		tracks.Close()
	})
}

// A user that may not hear who waits hears of releases. It hears of both once it may.
func TestWaitsThatMayNotBeHeard(t *testing.T) {
	inBubble(t, false, func(u *upstream) {
		u.waits("job")
		u.opened()
		u.says("%0")
		asked := u.serves(time.Minute, except("SUBSCRIBE "+waits, "-NOPERM no channels"))
		if n := count(asked, "SUBSCRIBE "+waits); n < 12 || n > 13 || !u.heardOf("job") {
			t.Errorf("it has asked %d times, heard: %v", n, u.heardOf("job"))
		}
		u.Conn.Close()
	})
}

// A message that is longer than any of a proxy is ignored without being kept, and the next one is
// not ignored.
func TestLongMessages(t *testing.T) {
	const pieces, most = 32, 16 << 20
	piece := []byte(strings.Repeat("f", maxReply))
	inBubble(t, false, func(u *upstream) {
		u.waits("job")
		u.want("job")
		u.opened()
		u.says("%0")
		u.serves(0, agrees)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fmt.Fprintf(u, ">3\r\n$7\r\nmessage\r\n$16\r\n%s\r\n$%d\r\n", own, pieces*len(piece))
		for range pieces {
			if _, err := u.Write(piece); err != nil {
				t.Fatal(err)
			}
		}
		io.WriteString(u, "\r\n")
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > most {
			t.Errorf("%d MB of memory for a message of %d MB", n>>20, pieces*len(piece)>>20)
		}
		u.says(">2", "$10", "invalidate", "*1", "$3", "job")
		u.follows("job", false, false)
		if !u.heardOf("job") {
			t.Error("the connection has ended")
		}
		u.Conn.Close()
	})
}
