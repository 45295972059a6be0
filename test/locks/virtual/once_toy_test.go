//go:build !race

package virtual_test

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"

	"lockproxy/internal/test/virtualnet"
	"lockproxy/internal/test/wire"
)

// onceToy serves ONCE, DONE, DEL and PING from memory, by the contract but for its bug.
type onceToy struct {
	bug string
	ln  *virtualnet.Listener
	all sync.WaitGroup

	mu   sync.Mutex
	next int64 // the next token
	keys map[string]*toyValue
	n    int // of what a bug counts
}

type toyValue struct {
	value   *string
	token   int64 // of the claim; 0 if nobody has it
	maker   io.Writer
	waiters []io.Writer
	last    string // the last value that was there
	older   string // the one before that
}

func startOnceToy(bug string) *onceToy {
	s := &onceToy{bug: bug, ln: virtualnet.Listen(), keys: map[string]*toyValue{}}
	s.all.Go(func() { // ends with the listener
		for {
			nc, err := s.ln.Accept()
			if err != nil {
				return
			}
			s.all.Go(func() { // ends with the client
				defer nc.Close()
				for in := bufio.NewReader(nc); ; {
					words, err := readWords(in)
					if err != nil {
						s.gone(nc)
						return
					}
					s.serve(nc, words)
				}
			})
		}
	})
	return s
}

// readWords reads one request.
func readWords(in *bufio.Reader) (words []string, err error) {
	var n, size int
	if _, err = fmt.Fscanf(in, "*%d\r\n", &n); err != nil {
		return nil, err
	}
	for range n {
		if _, err = fmt.Fscanf(in, "$%d\r\n", &size); err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err = io.ReadFull(in, word); err != nil {
			return nil, err
		}
		words = append(words, string(word[:size]))
	}
	return words, nil
}

// buggy reports whether the toy has a bug, and shows it now: every other time.
func (s *onceToy) buggy(bug string) bool {
	if s.bug != bug {
		return false
	}
	s.n++
	return s.n%2 == 0
}

func (s *onceToy) serve(c io.Writer, words []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if words[0] == "PING" {
		io.WriteString(c, "+PONG\r\n")
		return
	}
	k := s.keys[words[1]]
	if k == nil {
		k = &toyValue{}
		s.keys[words[1]] = k
	}
	switch words[0] {
	case "DEL":
		fmt.Fprintf(c, ":%d\r\n", len(slices.Compact([]*string{k.value, nil}))-1)
		k.value = nil
	case "ONCE":
		switch {
		case k.value != nil:
			io.WriteString(c, wire.Bulk(*k.value))
		case k.token == 0, s.buggy("two makers"):
			s.claim(k, c)
		case slices.Contains(words, "WAIT"):
			k.waiters = append(k.waiters, c)
		default:
			io.WriteString(c, "$-1\r\n")
		}
	case "DONE":
		s.done(c, k, words)
	}
}

// claim makes a client the maker.
func (s *onceToy) claim(k *toyValue, c io.Writer) {
	s.next++
	k.token, k.maker = s.next, c
	fmt.Fprintf(c, ":%d\r\n", k.token)
}

func (s *onceToy) done(c io.Writer, k *toyValue, words []string) {
	token, _ := strconv.ParseInt(words[2], 10, 64)
	if token != k.token && !s.buggy("lost claim stored") {
		io.WriteString(c, ":0\r\n")
		if len(words) > 3 && s.buggy("refused value given") {
			s.store(k, words[3])
		}
		return
	}
	io.WriteString(c, ":1\r\n")
	if len(words) == 3 {
		s.free(k)
		return
	}
	if token == k.token {
		k.token, k.maker = 0, nil
	}
	value := words[3]
	switch {
	case s.buggy("another value given"):
		value = "x" + value
	case s.bug == "older value given" && k.older != "" && s.next%5 == 0:
		value = k.older
	}
	k.older, k.last = k.last, value
	s.store(k, value)
}

// store stores a value, and answers all that wait.
func (s *onceToy) store(k *toyValue, value string) {
	k.value = &value
	for _, w := range k.waiters {
		if !s.buggy("waiter forgotten") {
			io.WriteString(w, wire.Bulk(value))
		}
	}
	k.waiters = nil
}

// free ends a claim: the first that waits is the next maker.
func (s *onceToy) free(k *toyValue) {
	k.token, k.maker = 0, nil
	if len(k.waiters) > 0 && k.value == nil {
		next := k.waiters[0]
		k.waiters = k.waiters[1:]
		s.claim(k, next)
	}
}

// gone ends what a client had that has disconnected.
func (s *onceToy) gone(c io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		k.waiters = slices.DeleteFunc(k.waiters, func(w io.Writer) bool { return w == c })
		if k.maker == c {
			s.free(k)
		}
	}
}

// force ends all claims, as UNLOCK FORCE does.
func (s *onceToy) force() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		if k.token != 0 {
			s.free(k)
		}
	}
}
