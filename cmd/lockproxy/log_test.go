package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/testwait"
)

// A line that a client would like to have in the log, and the key and owner that it tries.
const (
	forgedLine  = "2026-01-01T00:00:00.000Z [INFO]  lockproxy: forged: by=key"
	forgedKey   = "a\n" + forgedLine + "\r\nb"
	forgedOwner = "me\n" + forgedLine + "\n"
)

// A record is one line, whatever a client puts into a lock's key and owner.
func TestLogRecordsAreLines(t *testing.T) {
	t.Parallel()
	record := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\S+ \[[A-Z]+\] +lockproxy[.a-z-]*: `)
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := serveRuns(t, "--log-format", format, "--slow-wait", "20ms")
			s.do("LOCK", forgedKey, "300", "OWNER", forgedOwner)
			wait := s.ask.Do(t.Context(), "LOCK", forgedKey, "300", "WAIT", "0.1", "OWNER",
				forgedOwner+"2")
			if wait.Err() != redis.Nil {
				t.Errorf("the second LOCK: %v", wait)
			}
			s.do("UNLOCK", forgedKey, "FORCE")
			testwait.Until(t, "the last record names the lock", func() bool {
				_, last, _ := strings.Cut(s.proxy.said(), "a forced unlock released")
				return strings.Contains(last, "forged: by=key")
			})
			for line := range strings.Lines(s.proxy.said()) {
				var fields map[string]any
				if format == "json" && json.Unmarshal([]byte(line), &fields) != nil ||
					format == "text" && !record.MatchString(line) {
					t.Errorf("not a record: %q", line)
				}
				if key, named := fields["key"]; named && key != forgedKey {
					t.Errorf("key %q, want %q", key, forgedKey)
				}
				if strings.HasPrefix(line, forgedLine) {
					t.Errorf("a client's line: %q", line)
				}
			}
			if quoted := "key=" + strconv.Quote(forgedKey); format == "text" &&
				!strings.Contains(s.proxy.said(), quoted) {
				t.Errorf("no %s in:\n%s", quoted, s.proxy.said())
			}
		})
	}
}

// So is one that comes by With, a standard logger or go-redis, and what needs no quotes gets none.
func TestLogLine(t *testing.T) {
	var out bytes.Buffer
	format := loggingOptions{LogLevel: "info", LogFormat: "text"}
	log := newLogger(&options{loggingOptions: format}, &out)
	log.Named("sub").With("at", "x\ny").Info("plain", "key", "job:1", "took", 5*time.Millisecond)
	log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Warn}).Print("one\ntwo\n")
	redisLog{log}.Printf(t.Context(), "below the level %s", "x\ny")
	log.SetLevel(hclog.Debug)
	redisLog{log}.Printf(t.Context(), "lost %v", fmt.Errorf("x\ny"))
	log.Error("failed", "error", fmt.Errorf("x\ny"))
	var got []string
	for line := range strings.Lines(out.String()) {
		_, rest, _ := strings.Cut(line, " ")
		got = append(got, strings.TrimSuffix(rest, "\n"))
	}
	want := []string{
		`[INFO]  lockproxy.sub: plain: at="x\ny" key=job:1 took=5ms`,
		`[WARN]  lockproxy: "one\ntwo"`,
		`[DEBUG] lockproxy: "lost x\ny"`,
		`[ERROR] lockproxy: failed: error="x\ny"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Lines that clients can cause again and again do not fill the log, in either format.
func TestLogIsNotFlooded(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log := newLogger(&options{loggingOptions: loggingOptions{LogLevel: "info",
			LogFormat: format}}, &out)
		const lines = 100_000
		for range lines {
			log.Info("forced unlock", "key", "k")
		}
		if n := bytes.Count(out.Bytes(), []byte("\n")); n == 0 || n == lines {
			t.Errorf("%s: %d lines of %d", format, n, lines)
		}
	}
}
