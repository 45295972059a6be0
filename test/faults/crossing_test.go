//go:build faults && linux

package faults_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// Requests can cross with the end of a connection. Clients that send one command
// after another, with pauses or without, lose none, in as many ends as are tried:
// LOCKPROXY_TEST_DRAINS, with 400 clients each. Clients that send without waiting
// for replies do: those commands are not run, and not answered.
//
// A machine that stops spoils a drain: the kernel holds a client's last answer back until the end
// of its connection comes, but for no longer than 200 ms, and a client that has sent nothing for a
// second may send at the moment at which it is closed. Then there is another drain, but there are
// few: a proxy that does without that would be lucky in one of many.
func TestPromisedRequestsThatCrossADrain(t *testing.T) {
	t.Parallel()
	drains := 2
	if text := os.Getenv("LOCKPROXY_TEST_DRAINS"); text != "" {
		drains, _ = strconv.Atoi(text)
	}
	server := testredis.Start(t)
	direct := proxytest.GoRedis(t, server.Addr())
	var total crossings
	for range drains {
		for again := 0; ; again++ {
			x := crossOneDrain(t, server.URL(), direct, 400)
			total.add(x)
			if x.crossed[0]+x.crossed[1] == 0 || t.Failed() {
				break
			} else if again == 2 {
				t.Errorf("in each drain clients that wait for answers lost a command: %+v in the last", x)
				break
			}
		}
	}
	// A busy machine that answers late acknowledges requests in packets of their own. It answers few
	// clients sooner.
	for again := 0; total.together == 0 && !t.Failed(); again++ {
		if again == 20 {
			t.Error("no client had the end in one packet with its last answer")
		}
		total.add(crossOneDrain(t, server.URL(), direct, 8))
	}
	t.Logf("of %d ends of connections of clients that ask one thing after another, %d crossed with "+
		"a command, and %d came in one packet with an answer; of %d of clients that pause, %d "+
		"crossed; of %d of clients that send without waiting, %d, which lost %d commands, none of "+
		"which was run", total.ends[0], total.crossed[0], total.together, total.ends[1],
		total.crossed[1], total.ends[2], total.crossed[2], total.lost)
}

// crossings counts, of three kinds of clients, how many
// connections ended, and how many commands with them.
type crossings struct {
	ends, crossed [3]int
	lost          int
	together      int // clients of the first kind: the end came in one packet with an answer
}

func (x *crossings) add(y crossings) {
	for i := range x.ends {
		x.ends[i] += y.ends[i]
		x.crossed[i] += y.crossed[i]
	}
	x.lost += y.lost
	x.together += y.together
}

func crossOneDrain(t *testing.T, url string, direct *redis.Client, clients int) (x crossings) {
	p := proxytest.Start(t, url, nil)
	var mu sync.Mutex
	var served, running sync.WaitGroup
	served.Add(clients)
	for i := range clients {
		nc, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		kind := 0
		if i%8 == 7 {
			kind = 2
		} else if i%2 == 1 {
			kind = 1
		}
		running.Go(func() {
			defer nc.Close()
			answered := sync.OnceFunc(served.Done)
			defer answered()
			lost, together := 0, false
			if kind == 2 {
				lost = sendWithoutWaiting(t, direct, nc, answered)
			} else {
				lost, together = askOneByOne(t, nc, time.Duration(kind)*1500*time.Millisecond, answered)
			}
			mu.Lock()
			defer mu.Unlock()
			x.ends[kind]++
			x.lost += lost
			if lost > 0 {
				x.crossed[kind]++
			}
			if kind == 0 && together {
				x.together++
			}
		})
	}
	served.Wait()
	wait := proxytest.Shutdown(proxytest.Ctx, t, p)
	if err := wait(); err != nil {
		t.Error(err)
	}
	running.Wait()
	return x
}

// askOneByOne asks until the connection has ended, and returns how many commands were not answered:
// one or none. answered is called with each answer. The pauses are shorter and longer than a drain
// leaves silent clients their connections.
//
// together is that only one packet has come since the last command was sent, with the answer and
// the end. No delay can make two packets one.
func askOneByOne(t *testing.T, nc net.Conn, pause time.Duration, answered func()) (
	lost int, together bool) {
	before := 0
	answer := make([]byte, 7)
	for !proxytest.KnowsEnd(t, nc) {
		nc.SetDeadline(testwait.Deadline())
		before = packets(t, nc)
		if _, err := nc.Write([]byte("PING\r\n")); err != nil {
			return 1, false
		}
		if _, err := io.ReadFull(nc, answer); err != nil {
			return 1, false
		}
		answered()
		if pause > 0 {
			time.Sleep(rand.N(pause))
		}
	}
	return 0, packets(t, nc) == before+1
}

// packets is how many have come on a connection.
func packets(t *testing.T, nc net.Conn) (n int) {
	t.Helper()
	control, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	control.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = int(info.Segs_in)
		}
	})
	if err != nil {
		t.Error(err)
	}
	return n
}

// crossingKeys numbers the keys of the counting clients.
var crossingKeys atomic.Int64

// sendWithoutWaiting counts in redis, with several commands under way, and returns how many were
// not answered. Exactly the answered ones have been run. told is called with each answer.
func sendWithoutWaiting(t *testing.T, direct *redis.Client, nc net.Conn, told func()) (lost int) {
	key := fmt.Sprint("crossing:", crossingKeys.Add(1))
	answered := 0
	underWay := make(chan struct{}, 8)
	ended := make(chan struct{})
	go func() { // ends with the connection; waited for below
		defer close(ended)
		for in := bufio.NewReader(nc); ; answered++ {
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
			<-underWay
			told()
		}
	}()
	sent := 0
	for open := true; open; {
		if _, err := nc.Write([]byte("INCR " + key + "\r\n")); err != nil {
			break
		}
		sent++
		select {
		case <-ended:
			open = false
		case underWay <- struct{}{}:
		}
	}
	nc.Close()
	<-ended
	if run, err := direct.Get(proxytest.Ctx, key).Int(); err != nil || run != answered {
		t.Errorf("of %d commands %d were run and %d answered, %v", sent, run, answered, err)
	}
	return sent - answered
}
