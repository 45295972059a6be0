package testhostile

import (
	_ "embed"
	"strconv"
	"strings"
	"testing"
)

//go:embed requests.txt
var text string

// Requests returns the collection; see requests.txt.
func Requests(t testing.TB) (all [][]byte) {
	t.Helper()
	for i, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		request, err := parse(line)
		if err != nil {
			t.Fatalf("requests.txt, line %d: %v", i+1, err)
		}
		all = append(all, request)
	}
	return all
}

// parse reads one case: Go strings, each with *n behind it or not.
func parse(line string) (request []byte, err error) {
	for line != "" {
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return nil, err
		}
		piece, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		count, rest, _ := strings.Cut(line[len(quoted):], " ")
		n := 1
		if count != "" {
			if n, err = strconv.Atoi(strings.TrimPrefix(count, "*")); err != nil {
				return nil, err
			}
		}
		request = append(request, strings.Repeat(piece, n)...)
		line = rest
	}
	return request, nil
}
