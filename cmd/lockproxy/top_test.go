package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
)

// Into a pipe the locks are printed once.
func TestTopOfProcess(t *testing.T) {
	redis := testredis.Start(t, "--requirepass", secret)
	addr := fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t))
	start(t, "--listen", addr, "--upstream", "redis://:"+secret+"@"+redis.Addr()+"/3")
	nc, err := net.Dial("tcp", addr)
	if got := ask(t, nc, err, "LOCK report 1000 OWNER anna"); !strings.HasPrefix(got, ":") {
		t.Fatalf("LOCK: %q", got)
	}
	var out, errs bytes.Buffer
	if status := run([]string{"top", "--url", "redis://" + addr}, &out, &errs); status != 0 {
		t.Fatalf("status %d: %s", status, errs.String())
	}
	if text := out.String(); !strings.HasPrefix(text, "lockproxy "+addr+"  1 lock ") ||
		!strings.Contains(text, "\nreport ") || !strings.Contains(text, "anna") {
		t.Errorf("got\n%s", text)
	}
	if status := run([]string{"top", "--url", "redis://x:" + secret + "@127.0.0.1:1"}, &out,
		&errs); status != exitFailure ||
		!strings.Contains(errs.String(), "cannot reach 127.0.0.1:1") ||
		strings.Contains(errs.String(), secret) {
		t.Errorf("status %d: %s", status, errs.String())
	}
}

func TestTopOptions(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"top --interval 0.01", "--interval"}, {"top --rows -1", "--rows"},
		{"top --sort nonsense", "--sort"},
		{"top --url redis://u:" + secret + "@h:port", "--url"}, {"top --tls-ca x", "rediss://"},
		{"top --url redis+sentinel://u:" + secret + "@h/g", "--url names one lockproxy"},
		{"top --url rediss+cluster://u:" + secret + "@h", "--url names one lockproxy"},
	} {
		_, err := parse(strings.Fields(test.args), io.Discard)
		if err == nil || !strings.Contains(err.Error(), test.want) ||
			strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", test.args, err)
		}
	}
}
