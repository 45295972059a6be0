package relay_test

import (
	"io"
	"testing"

	"lockproxy/internal/test/proxytest"
)

// A request whose end is not CRLF, and what stands behind it, are answered as by the server itself:
// Valkey as of 9.1 refuses it, and answers nothing more.
func TestRequestsBehindALooseOne(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	var answers []string
	for _, addr := range []string{server.Addr(), p.Addr} {
		c := proxytest.Dial(t, addr)
		c.Expect("WATCH a", "+OK\r\n") // so that its own connection serves it
		c.Write([]byte("*1\r\n$4\r\nPINGxy*2\r\n$4\r\nECHO\r\n$1\r\na\r\n*1\r\n$4\r\nQUIT\r\n"))
		got, err := io.ReadAll(c.In)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, string(got))
	}
	if answers[0] != answers[1] {
		t.Errorf("directly %q, through the proxy %q", answers[0], answers[1])
	}
}
