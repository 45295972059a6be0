package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
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

func TestStream(t *testing.T) {
	t.Parallel()
	s := startSite(t, nil)
	s.lock(s.client(), "a", 30)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, lines := s.stream(ctx)
	events := map[string]int{}
	name := ""
	began := time.Now()
	for events["locks"] < 13 && lines.Scan() { // longer than a request may take to arrive
		line := lines.Text()
		if after, ok := strings.CutPrefix(line, "event: "); ok {
			name = after
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			events[name]++
			if name == "locks" && !strings.Contains(data, `"key":"a"`) {
				t.Fatalf("%s", data)
			}
			if !json.Valid([]byte(data)) {
				t.Fatalf("not JSON: %s", data)
			}
		}
	}
	if took := time.Since(began); events["locks"] != 13 || events["state"] != 13 ||
		took < 11*time.Second {
		t.Errorf("%v in %v: %v", events, took, lines.Err())
	}
}

// Pages that are not read keep no others from the live page: the oldest page of the address that
// has most of them goes.
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
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("the oldest page of the address that has most stays open")
	}
	for range 10 {
		if !operator.Scan() {
			t.Fatalf("the only page of another address has ended: %v", operator.Err())
		}
	}
}
