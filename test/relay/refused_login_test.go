package relay_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/wire"
)

// Redis as of 7.2 and Valkey do not answer an AUTH that they refuse while the client has replies to
// come: those to what has come with it. Here it comes alone.
func TestRefusedLoginInAPipeline(t *testing.T) {
	for _, login := range []string{"AUTH ann no", "HELLO 3 AUTH ann no"} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { // ends with ln
			defer close(done)
			for {
				nc, err := ln.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { nc.Close() })
				go answerPackets(nc) // ends with nc
			}
		}()
		t.Cleanup(func() { ln.Close(); <-done })
		p := proxytest.Start(t, "redis://"+ln.Addr().String(), nil)
		k := proxytest.Dial(t, p.Addr)
		k.Send("ECHO 1", "ECHO 2", login, "ECHO 3", "ECHO 4")
		for _, want := range []string{"+1\r\n", "+2\r\n", "-WRONGPASS no\r\n", "+3\r\n", "+4\r\n"} {
			k.WantReply(want)
		}
	}
}

// Within EXEC they do not answer it either, but count it in the array. The client gets the bytes that
// it would get without the proxy, and lock commands are refused until RESET: nobody knows any more
// which reply is whose.
func TestRefusedLoginWithinMulti(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), nil)
	for _, login := range []string{"AUTH ann no", "HELLO 2 AUTH ann no"} {
		requests := []string{"MULTI", "SET a 1", login, "SET a 2", "EXEC", "ECHO 1", "ECHO 2", "ECHO end"}
		direct, through := proxytest.Dial(t, server.Addr()), proxytest.Dial(t, p.Addr)
		direct.Send(requests...)
		through.Send(requests...)
		want, got := direct.Until("$3\r\nend\r\n"), through.Until("$3\r\nend\r\n")
		if got != want {
			t.Errorf("%s: got %q, directly %q", login, got, want)
		}
		if !strings.Contains(want, "WRONGPASS") {
			through.Expect("LOCK k 300", "-ERR lock commands can't be used on a connection whose…")
		}
		through.Expect("RESET", "+RESET\r\n")
		through.Expect(proxytest.Unlock("k", through.Lock("k 300")), ":1\r\n")
	}
}

// answerPackets answers ECHO, and a login only if it is the first of what has come together.
func answerPackets(nc net.Conn) {
	for buf := make([]byte, 1<<16); ; {
		n, err := nc.Read(buf)
		if err != nil {
			return
		}
		var out []byte
		for in := bufio.NewReader(bytes.NewReader(buf[:n])); ; {
			words, err := wire.ReadCommand(in)
			if err == io.EOF {
				break
			}
			if err != nil {
				return
			}
			switch last := words[len(words)-1]; {
			case strings.EqualFold(words[0], "echo"):
				out = append(out, "+"+last+"\r\n"...)
			case last == "no" && len(out) > 0:
			case last == "no":
				out = append(out, "-WRONGPASS no\r\n"...)
			default:
				out = append(out, "+OK\r\n"...)
			}
		}
		nc.Write(out)
	}
}
