package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// stream opens /events and returns its lines.
func (s *site) stream(ctx context.Context) (*http.Response, *bufio.Scanner) {
	s.t.Helper()
	req, _ := http.NewRequestWithContext(ctx, "GET", s.url+"/events?filter=a", nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return resp, lines
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
	if took := time.Since(began); events["locks"] != 13 || events["state"] != 13 || took < 11*time.Second {
		t.Errorf("%v in %v: %v", events, took, lines.Err())
	}
}

func TestStreamsAreBounded(t *testing.T) {
	s := startSite(t, nil)
	ctx, cancel := context.WithCancel(ctx)
	for range 8 {
		if resp, lines := s.stream(ctx); resp.StatusCode != 200 || !lines.Scan() {
			t.Fatalf("%d", resp.StatusCode)
		}
	}
	if resp, _ := s.stream(ctx); resp.StatusCode != 503 {
		t.Errorf("one too many: %d", resp.StatusCode)
	}
	cancel()
	eventually(t, 5*time.Second, "a place again", func() bool {
		again, end := context.WithTimeout(context.Background(), time.Second)
		defer end()
		resp, _ := s.stream(again)
		return resp.StatusCode == 200
	})
}
