package relay_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"lockproxy/internal/resp"
)

// The tables in testdata/differential are plain text. Each file has its own pair of servers. Each
// conversation in it begins with empty databases and new connections, and is held in RESP2 and in
// RESP3. A line is one call, or one of:
//
//	# …                      a comment
//	!server --option value   options of the redis-server of this file; first line
//	== name (RESP3)          a new conversation; in brackets, if it is held in one protocol only.
//	                         (raw) sends no HELLO
//	== name (dedicated)      it is left out where clients share upstream connections, since others'
//	                         requests show in it
//	== name (redis)          it is left out with Valkey
//	== name (before 7.2)     it is left out with a later server, and (apart) is then not held in one
//	                         pipeline: from 7.2 on Redis leaves some refusals behind replies that
//	                         it has not sent yet unanswered
//	GET k                    a call on the connection without a name, words as in redis-cli;
//	                         its one reply is read
//	@b GET k                 the same on connection b, which is opened by its first line
//	SUBSCRIBE a b => 2       a call with that many replies, or one error; 0 if none comes, or later
//	=> 1                     nothing is sent, a further reply is read
//	QUIT => closed           everything is read until the connection is closed
//	@b CLIENT ID => $b       the reply, an integer or a string, becomes the variable $b and is not
//	                         compared
//	CLIENT INFO => $a addr=(\S+)   the part of the reply that the expression finds becomes $a
//	!send "*1\r\n$4\r\n…"    these bytes, as they are; nothing is read
//	!closewrite              closes the sending side
//	!close                   closes the connection
//	!blocked 2               waits until that many clients block on the server
//	!until "INFO x" text     waits until the server's reply to INFO x contains text
//	!locked                  waits until a new connection is told that it must log in
//	!busy                    waits until the server refuses commands because a script runs
//
// $port is the redis-server's port.

// A diffScript is one file.
type diffScript struct {
	file          string
	server        []string
	conversations []*diffConversation
}

type diffConversation struct {
	name  string
	proto string // "2", "3", "raw", or "" for both 2 and 3
	limit string // "dedicated", "redis", "before 7.2", "apart", or "" for none
	steps []diffStep
}

type diffStep struct {
	line      int
	text      string
	conn      string
	directive string // "send", …, or "" for a call
	args      []string
	replies   int
	closed    bool
	capture   string
	pattern   *regexp.Regexp
}

// diffScripts reads all files.
func diffScripts(t testing.TB) (scripts []*diffScript) {
	t.Helper()
	files, err := filepath.Glob("testdata/differential/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tables of calls: %v", err)
	}
	for _, file := range files {
		script, err := diffParse(file)
		if err != nil {
			t.Fatal(err)
		}
		scripts = append(scripts, script)
	}
	return scripts
}

var (
	diffTitle = regexp.MustCompile(`^== (.*?)(?: \((?:RESP)?(2|3|raw)\))?` +
		`(?: \((dedicated|redis|before 7.2|apart)\))?$`)
	diffSuffix = regexp.MustCompile(`^(.*?)(?:^| )=> (closed|[0-9]+|\$[a-z]+(?: .*)?)$`)
)

func diffParse(file string) (*diffScript, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &diffScript{file: filepath.Base(file)}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		var err error
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "!server "):
			s.server = strings.Fields(line)[1:]
		case strings.HasPrefix(line, "== "):
			m := diffTitle.FindStringSubmatch(line)
			c := &diffConversation{name: m[1], proto: m[2], limit: m[3]}
			s.conversations = append(s.conversations, c)
		case len(s.conversations) == 0:
			err = errors.New("a step before the first ==")
		default:
			var step diffStep
			step, err = diffParseStep(line)
			step.line = i + 1
			c := s.conversations[len(s.conversations)-1]
			c.steps = append(c.steps, step)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
	}
	return s, nil
}

func diffParseStep(line string) (step diffStep, err error) {
	step = diffStep{text: line, replies: 1}
	if line[0] == '@' {
		step.conn, line, _ = strings.Cut(line[1:], " ")
	}
	if line != "" && line[0] == '!' {
		var rest string
		step.directive, rest, _ = strings.Cut(line[1:], " ")
		step.args, err = diffWords(rest)
		return step, err
	}
	if m := diffSuffix.FindStringSubmatch(line); m != nil {
		line = m[1]
		switch what := m[2]; {
		case what == "closed":
			step.closed = true
		case what[0] == '$':
			var pattern string
			step.capture, pattern, _ = strings.Cut(what[1:], " ")
			if pattern == "" {
				pattern = `(?:^:|^\$[0-9]+\r\n|^\+|^=[0-9]+\r\ntxt:)(.*)\r\n`
			}
			step.pattern, err = regexp.Compile(pattern)
		default:
			step.replies, err = strconv.Atoi(what)
		}
		if err != nil {
			return step, err
		}
	}
	step.args, err = diffWords(line)
	return step, err
}

// diffWords cuts a line as redis-cli does.
func diffWords(line string) (words []string, err error) {
	if strings.TrimSpace(line) == "" {
		return nil, nil
	}
	// blanks: "*" must not begin it
	req, ok, err := resp.NewFramer(resp.Limits{}).Next([]byte("  " + line + "\n"))
	if err != nil || !ok {
		return nil, fmt.Errorf("not a line of words: %v", err)
	}
	for _, arg := range req.Args {
		words = append(words, string(arg))
	}
	return words, nil
}

// command is the name that the step's call has, or would have, in COMMAND LIST: "get", "client|id".
func (s *diffStep) command(containers map[string]bool) string {
	if s.directive != "" || len(s.args) == 0 {
		return ""
	}
	name := strings.ToLower(s.args[0])
	if containers[name] && len(s.args) > 1 {
		name += "|" + strings.ToLower(s.args[1])
	}
	return name
}
