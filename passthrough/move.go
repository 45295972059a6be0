package passthrough

import (
	"context"
	"strconv"
)

// move sets a spare up as to says, without a new login. If it reports false the connection has been closed.
func move(ctx context.Context, s *spare, to Setup) bool {
	needed, labels := moves(s.setup, to)
	ok := true
	if len(needed)+len(labels) > 0 {
		replies, err := askUntil(ctx, s.conn, append(needed, labels...)...)
		ok = err == nil
		for i := range needed {
			ok = ok && !replies[i].IsError()
		}
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
