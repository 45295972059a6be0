//go:build linux

package check_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func (s *lockServer) serve(c *serverConn) {
	defer c.nc.Close()
	s.mu.Lock()
	s.conns[c] = true
	s.mu.Unlock()
	commands := make(chan []string, 100)
	go func() { // ends with the connection, which serve closes
		defer close(commands)
		defer close(c.gone)
		for in := bufio.NewReader(c.nc); ; {
			args, err := readCommand(in)
			if err != nil {
				return
			}
			commands <- args
		}
	}()
	for args := range commands {
		s.reply(c, s.run(c, args))
	}
	crossed := !s.deadKeep && refused(c.nc)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	for key, l := range s.locks {
		if l.by == c && (l.session || crossed) {
			s.free(key, l)
		}
	}
}

// refused reports whether a closed client has answered a later reply with a reset.
func refused(nc net.Conn) bool {
	time.Sleep(2 * time.Millisecond)
	control, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		return false
	}
	pending := 0
	control.Control(func(fd uintptr) {
		pending, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
	})
	return pending != 0
}

// reply writes to c, or sometimes to another connection if replies are swapped.
func (s *lockServer) reply(c *serverConn, text string) {
	s.mu.Lock()
	if s.swapsReplies && s.random.IntN(40) == 0 {
		for other := range s.conns {
			if other != c {
				c = other
				break
			}
		}
	}
	s.mu.Unlock()
	c.wmu.Lock()
	defer c.wmu.Unlock()
	io.WriteString(c.nc, text)
}

func readCommand(in *bufio.Reader) ([]string, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	n, _ := strconv.Atoi(strings.Trim(line, "*\r\n"))
	args := make([]string, n)
	for i := range args {
		if line, err = in.ReadString('\n'); err != nil {
			return nil, err
		}
		size, _ := strconv.Atoi(strings.Trim(line, "$\r\n"))
		body := make([]byte, size+2)
		if _, err = io.ReadFull(in, body); err != nil {
			return nil, err
		}
		args[i] = string(body[:size])
	}
	return args, nil
}

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

// run executes one command and returns its reply.
func (s *lockServer) run(c *serverConn, args []string) string {
	name := strings.ToUpper(args[0])
	if name == "LOCK" {
		return s.lock(c, args)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch name {
	case "PING", "HELLO":
		return "+PONG\r\n"
	case "ECHO":
		return bulk(args[1])
	case "GET":
		if s.staleReads && s.random.IntN(4) == 0 {
			return bulk(s.data[args[1]][1])
		}
		return bulk(s.data[args[1]][0])
	case "RPUSH":
		dice := s.random.IntN(20)
		if !s.losesWrites || dice != 0 {
			s.lists[args[1]] = append(s.lists[args[1]], args[2])
		}
		if s.doublesWrites && dice == 1 {
			s.lists[args[1]] = append(s.lists[args[1]], args[2])
		}
		return ":1\r\n"
	}
	l := s.locks[args[1]]
	if l == nil {
		return ":0\r\n"
	}
	token := l.token
	if len(args) > 2 {
		token, _ = strconv.ParseInt(args[2], 10, 64)
	}
	held := l.by != nil && !s.expired(l, c.proxy)
	switch name {
	case "UNLOCK":
		mine := len(args) > 2 && (token == l.token || s.noCompare) || len(args) == 2 &&
			(l.by == c || s.noOwnerCheck)
		if held && mine {
			s.free(args[1], l)
			return ":1\r\n"
		}
	case "RELOCK":
		if held && token == l.token {
			ms, _ := strconv.ParseFloat(args[3], 64)
			if !l.session || s.silentSessions {
				l.until = time.Now().Add(time.Duration(ms * float64(time.Second)))
			}
			return ":1\r\n"
		}
	case "FENCE":
		if !s.unfenced && (!held || token != l.token) {
			return "-FENCED\r\n"
		}
		s.data[args[4]] = [2]string{args[5], s.data[args[4]][0]}
		return "+OK\r\n"
	}
	return ":0\r\n"
}

func (s *lockServer) lock(c *serverConn, args []string) string {
	w := &waiting{on: c, given: make(chan int64, 1)}
	f, _ := strconv.ParseFloat(args[2], 64)
	w.lease = time.Duration(f * float64(time.Second))
	patience := time.Duration(-1)
	for i := 3; i < len(args); i++ {
		switch args[i] {
		case "WAIT":
			f, _ := strconv.ParseFloat(args[i+1], 64)
			patience = time.Duration(f * float64(time.Second))
			i++
		case "SESSION":
			w.session = true
		case "OWNER":
			i++ // its clients never repeat a LOCK
		}
	}
	s.mu.Lock()
	l := s.locks[args[1]]
	if l == nil {
		l = &heldLock{}
		s.locks[args[1]] = l
	}
	if l.by != nil && s.expired(l, c.proxy) {
		s.free(args[1], l)
	}
	if l.by == nil {
		token := s.give(l, w)
		s.mu.Unlock()
		return fmt.Sprintf(":%d\r\n", token)
	}
	if patience >= 0 {
		l.queue = append(l.queue, w)
	}
	s.mu.Unlock()
	if patience < 0 {
		return "$-1\r\n"
	}
	return s.await(l, args[1], w, patience)
}

func (s *lockServer) await(l *heldLock, key string, w *waiting, patience time.Duration) string {
	if patience == 0 {
		patience = time.Hour
	}
	select {
	case token := <-w.given:
		return fmt.Sprintf(":%d\r\n", token)
	case <-w.on.gone:
		if s.deadKeep {
			select {
			case <-w.given:
			case <-s.stop:
			}
			return ""
		}
	case <-s.stop:
	case <-time.After(patience):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range l.queue {
		if other == w {
			l.queue = append(l.queue[:i:i], l.queue[i+1:]...)
			return "$-1\r\n"
		}
	}
	var token int64
	select {
	case token = <-w.given: // given while this waiter left
	default:
		return ""
	}
	select {
	case <-w.on.gone:
		if l.by == w.on && l.token == token {
			s.free(key, l)
		}
	default:
	}
	return fmt.Sprintf(":%d\r\n", token)
}
