package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/admin"
	"lockproxy/internal/test/testwait"
)

// stream opens /events and returns its lines.
func (s *site) stream(ctx context.Context) (*http.Response, *bufio.Scanner) {
	s.t.Helper()
	return s.streamFrom(ctx, "127.0.0.1")
}

// streamFrom does so from another address of this machine.
func (s *site) streamFrom(ctx context.Context, addr string) (*http.Response, *bufio.Scanner) {
	s.t.Helper()
	req, _ := http.NewRequestWithContext(ctx, "GET", s.url+"/events?filter=a", nil)
	resp, err := clientFrom(addr).Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return resp, lines
}

// clientFrom makes requests from an address of this machine.
func clientFrom(addr string) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext,
		DisableKeepAlives: true}}
}

// A stream has its events each second, and may last longer than other answers.
func TestStream(t *testing.T) {
	t.Parallel()
	const timeout, times = 3 * time.Second, 5 // a second apart
	s := startSite(t, nil, func(s *admin.Server) { admin.SetTimeouts(s, timeout) })
	s.lock(s.client(), "a", 600)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, lines := s.stream(ctx)
	events := map[string]int{}
	name := ""
	for events["locks"] < times && lines.Scan() {
		line := lines.Text()
		if after, ok := strings.CutPrefix(line, "event: "); ok {
			name = after
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			events[name]++
			if name == "locks" && !strings.Contains(data, `"key":"a"`) {
				t.Fatalf("%s", data)
			}
			if name == "seen" && !strings.Contains(data, `"events":[]`) {
				t.Fatalf("no list of events: %s", data)
			}
			if !json.Valid([]byte(data)) {
				t.Fatalf("not JSON: %s", data)
			}
		}
	}
	if events["locks"] != times || events["state"] != times {
		t.Errorf("%v: %v", events, lines.Err())
	}
}

// Pages that are not read don't keep others from the live page: the oldest page of the address with
// most pages is closed.
func TestStreamsAreBounded(t *testing.T) {
	s := startSite(t, nil)
	_, operator := s.streamFrom(ctx, "127.0.0.2")
	operator.Scan()
	for range 8 {
		s.streamFrom(ctx, "127.0.0.1") // reads nothing
	}
	first, _ := s.streamFrom(ctx, "127.0.0.1")
	for range 7 {
		s.streamFrom(ctx, "127.0.0.1")
	}
	resp, lines := s.streamFrom(ctx, "127.0.0.3")
	if resp.StatusCode != 200 || !lines.Scan() {
		t.Errorf("a new page: %d, %v", resp.StatusCode, lines.Err())
	}
	ended := make(chan error, 1)
	go func() { // ends with the stream, which the proxy closes
		_, err := io.Copy(io.Discard, first.Body)
		ended <- err
	}()
	testwait.For(t, "the end of the oldest page of the address that has most", ended)
	for range 10 {
		if !operator.Scan() {
			t.Fatalf("the only page of another address has ended: %v", operator.Err())
		}
	}
}

// deadlock has two owners, each of which has a lock, wait for the other's, until the second one is
// refused. Then both are free.
func (s *site) deadlock(first, second, anna, bert string) {
	s.t.Helper()
	c := s.client()
	one, two := s.lock(c, first, 600, "OWNER", anna), s.lock(c, second, 600, "OWNER", bert)
	got := make(chan int64, 1)
	go func() { // ends when the second lock is free
		token, _ := s.waiter().Do(ctx, "LOCK", second, 600, "WAIT", 6000, "OWNER", anna).Int64()
		got <- token
	}()
	testwait.Until(s.t, anna+" waits", func() bool { // others may wait, for other locks
		info, _ := c.Do(ctx, "LOCKINFO", second).Result()
		return strings.Contains(fmt.Sprint(info), "waiters:1 ")
	})
	err := c.Do(ctx, "LOCK", first, 600, "WAIT", 6000, "OWNER", bert).Err()
	if err == nil || !strings.HasPrefix(err.Error(), "DEADLOCK ") {
		s.t.Fatalf("told %v", err)
	}
	c.Do(ctx, "UNLOCK", second, two)
	two = testwait.For(s.t, anna+"'s lock", got)
	for key, token := range map[string]int64{first: one, second: two} {
		if n, err := c.Do(ctx, "UNLOCK", key, token).Int(); n != 1 {
			s.t.Errorf("UNLOCK %s: %d, %v", key, n, err)
		}
	}
}

// A deadlock that was found is an event, with its cycle, and it is counted.
func TestDeadlockIsAnEvent(t *testing.T) {
	t.Parallel()
	s := startSite(t, remembering)
	s.deadlock("k1", "k2", "anna", "bert")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, lines := s.stream(ctx)
	missing := []string{`"deadlocks":1}`, `"event":"deadlock","db":0,"key":"k1",`,
		`"cycle":"\"bert\" waits for \"k1\", held by \"anna\", who waits for \"k2\", ` +
			`held by \"bert\""}`}
	for len(missing) > 0 {
		if !lines.Scan() {
			t.Fatalf("not told of %q: %v", missing, lines.Err())
		}
		missing = slices.DeleteFunc(missing,
			func(want string) bool { return strings.Contains(lines.Text(), want) })
	}
}
