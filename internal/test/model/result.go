package model

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// result is what a verifier that spin has made says of one search.
type result struct {
	broken string // the property that a run breaks, "deadlock" for an invalid end state, or ""
	states int64
	depth  int64
	memory int64 // MB
}

var (
	statesLine = regexp.MustCompile(`(?m)^\s*([0-9.e+]+) states, stored`)
	depthLine  = regexp.MustCompile(
		`(?m)^State-vector \d+ byte, depth reached (\d+), errors: (\d+)`)
	memoryLine = regexp.MustCompile(`(?m)^\s*([0-9.]+)\s+total actual memory usage`)
	assertLine = regexp.MustCompile(
		`(?m)^pan:\d+: assertion violated \(?(\w+)\)? \(at depth \d+\)`)
	endLine     = regexp.MustCompile(`(?m)^pan:\d+: invalid end state \(at depth \d+\)`)
	problemLine = regexp.MustCompile(`(?m)^(pan:\d+: .*|error: .*|.*out of memory.*|.*MEMLIM.*)$`)
)

// readResult reads what a verifier has printed. An error is a search that proves nothing: one that
// was cut short without having found anything, or that ended in a way that is none of the model's.
func readResult(out string) (result, error) {
	var r result
	depth, states := depthLine.FindStringSubmatch(out), statesLine.FindStringSubmatch(out)
	if depth == nil || states == nil {
		return r, fmt.Errorf("the verifier has not finished: %s", firstProblem(out))
	}
	r.depth, _ = strconv.ParseInt(depth[1], 10, 64)
	n, err := strconv.ParseFloat(states[1], 64) // large ones come as 1.2e+07
	if err != nil {
		return r, fmt.Errorf("the verifier's number of states: %w", err)
	}
	r.states = int64(n)
	if memory := memoryLine.FindStringSubmatch(out); memory != nil {
		mb, _ := strconv.ParseFloat(memory[1], 64)
		r.memory = int64(mb)
	}
	if !strings.Contains(out, "Full statespace search for:") {
		return r, fmt.Errorf("not a full search")
	}
	found := depth[2] != "0"
	switch {
	case found && assertLine.MatchString(out):
		r.broken = assertLine.FindStringSubmatch(out)[1]
	case found && endLine.MatchString(out):
		r.broken = "deadlock"
	case found:
		return r, fmt.Errorf("an error that is none of the model's: %s", firstProblem(out))
	case strings.Contains(out, "Search not completed"),
		strings.Contains(out, "max search depth too small"),
		strings.Contains(out, "MEMLIM"), strings.Contains(out, "out of memory"):
		return r, fmt.Errorf("not searched to the end: %s", firstProblem(out))
	}
	return r, nil
}

// firstProblem is the line that says best what went wrong.
func firstProblem(out string) string {
	if line := problemLine.FindString(out); line != "" {
		return strings.TrimSpace(line)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
