package passthrough

import (
	"bufio"
	"context"
	"net"
	"strconv"
	"time"

	"lockproxy/internal/resp"
)

// move sets a spare up as to says, without a new login. If it reports false the connection has been closed.
func move(ctx context.Context, s *spare, to Setup) bool {
	needed, labels := moves(s.setup, to)
	replies, err := ask(ctx, s.conn, append(needed, labels...)...)
	ok := err == nil
	for i := range needed {
		ok = ok && replies[i][0] != '-' && replies[i][0] != '!'
	}
	if !ok {
		s.conn.Close()
	}
	return ok
}

// moves are the requests that bring a connection from one setup to another of the same login: those that must succeed, and those that
// only change what people see of it.
func moves(from, to Setup) (needed, labels [][]string) {
	if from.Proto != to.Proto {
		needed = append(needed, []string{"HELLO", strconv.Itoa(to.Proto)})
	}
	if from.DB != to.DB {
		needed = append(needed, []string{"SELECT", strconv.Itoa(to.DB)})
	}
	if from.Name != to.Name {
		labels = append(labels, []string{"CLIENT", "SETNAME", to.Name}) // an empty one takes the name away
	}
	if from.LibName != to.LibName {
		labels = append(labels, []string{"CLIENT", "SETINFO", "LIB-NAME", to.LibName})
	}
	if from.LibVer != to.LibVer {
		labels = append(labels, []string{"CLIENT", "SETINFO", "LIB-VER", to.LibVer})
	}
	return needed, labels
}

// ask sends requests by a connection on which nothing else is under way, and returns the first line of each reply, with its type and
// without its end. It ends when ctx does. After an error the connection is of no use.
func ask(ctx context.Context, conn net.Conn, cmds ...[]string) (replies []string, err error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
	}()
	var out []byte
	for _, cmd := range cmds {
		out = resp.AppendCommand(out, cmd...)
	}
	if _, err := conn.Write(out); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(conn, 512)
	for range cmds {
		_, head, err := readReply(in)
		if err != nil {
			return replies, err
		}
		replies = append(replies, string(head.Type)+string(head.Line))
	}
	return replies, nil
}
