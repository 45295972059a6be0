package passthrough

// How a new connection is logged in and set up.

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"lockproxy/internal/resp"
)

// Refused is the upstream's error to the login that the proxy does on a new connection.
type Refused struct {
	Addr  string
	Step  string // AUTH, SELECT or HELLO
	Reply string // as the upstream said it
}

func (e *Refused) Error() string {
	return fmt.Sprintf("%s refused the proxy's %s: %s", e.Addr, e.Step, e.Reply)
}

// loginCommands are the requests that bring a new connection to id.
func loginCommands(id Identity) (cmds [][]string) {
	if id.LoggedIn && id.User != "" {
		cmds = append(cmds, []string{"AUTH", id.User, id.Password})
	} else if id.LoggedIn {
		cmds = append(cmds, []string{"AUTH", id.Password})
	}
	if id.Proto == 3 {
		cmds = append(cmds, []string{"HELLO", "3"})
	}
	if id.DB != 0 {
		cmds = append(cmds, []string{"SELECT", strconv.Itoa(id.DB)})
	}
	return cmds
}

// probe is a request whose reply doesn't matter.
const probe = "PING"

func (u *Upstream) login(nc net.Conn, addr string, id Identity) error {
	cmds := loginCommands(id)
	if u.sentinels != nil {
		cmds = append(cmds, []string{askRole})
	}
	if _, isTLS := nc.(*secured); isTLS && len(cmds) == 0 {
		// With TLS 1.3 the server refuses a client's certificate only after the handshake: any reply shows that it didn't.
		cmds = [][]string{{probe}}
	}
	if len(cmds) == 0 {
		return nil
	}
	var out []byte
	for _, cmd := range cmds {
		out = resp.AppendCommand(out, cmd...)
	}
	if _, err := nc.Write(out); err != nil {
		return loginLost(nc, addr, err)
	}
	in := bufio.NewReaderSize(nc, 512)
	for _, cmd := range cmds {
		raw, head, err := readReply(in)
		switch {
		case err != nil:
			return loginLost(nc, addr, err)
		case cmd[0] == probe:
		case cmd[0] == askRole:
			if err := checkRole(raw); err != nil {
				return &Error{Addr: addr, Err: err}
			}
		case head.IsError():
			return &Refused{Addr: addr, Step: cmd[0], Reply: string(head.Line)}
		}
	}
	return nil
}

// askRole is the request whose reply tells whether a server is a master.
const askRole = "ROLE"

func readReply(in *bufio.Reader) (raw []byte, head resp.Head, err error) {
	var scan resp.Scanner
	for {
		b, err := in.ReadByte()
		if err != nil {
			return raw, head, err
		}
		raw = append(raw, b)
		if _, done, err := scan.Scan([]byte{b}); done || err != nil {
			return raw, scan.Head(), err
		}
	}
}

func loginLost(nc net.Conn, addr string, err error) error {
	if _, isTLS := nc.(*secured); isTLS && !errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("TLS: ended right after the handshake, as when the upstream misses a client certificate or doesn't accept it: %w", err)
	}
	return &Error{Addr: addr, Err: err}
}
