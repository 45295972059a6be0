package mutate

import (
	"regexp"
	"strconv"
	"strings"
)

// luaPlace is the place of the scripts, which are in the package luaPackage.
const (
	luaPlace   = "lua"
	luaPackage = "lockcmd/script"
)

// luaKinds are changes of what a pattern finds in a line, within the pattern's group.
var luaKinds = []struct {
	kind    string
	pattern *regexp.Regexp
	with    func(was string) string
}{
	{"and/or", regexp.MustCompile(`\b(and|or)\b`), swap("and", "or")},
	{"equal", regexp.MustCompile(`(==|~=)`), swap("==", "~=")},
	{"less", regexp.MustCompile(` (<|<=) `), swap("<", "<=")},
	{"less", regexp.MustCompile(` (>|>=) `), swap(">", ">=")},
	{"plus", regexp.MustCompile(`\w (\+|-) \w`), swap("+", "-")},
	{"bool", regexp.MustCompile(`\b(true|false)\b`), swap("true", "false")},
	{"negate", regexp.MustCompile(`\b(not )`), func(string) string { return "" }},
	{"constant", regexp.MustCompile(`(?:^|[^\w.'%])(\d+)(?:[^\w.']|$)`), func(was string) string {
		n, _ := strconv.Atoi(was)
		return strconv.Itoa(n + 1)
	}},
	{"always", regexp.MustCompile(`\bif (.+) then\b`), func(string) string { return "true" }},
	{"never", regexp.MustCompile(`\bif (.+) then\b`), func(string) string { return "false" }},
	{"drop statement", regexp.MustCompile(`^\s*([\w.]+(?:\[[^]]+\])? = [^{]+[^{,(])$`), drop},
	{"drop statement", regexp.MustCompile(`^\s*([\w.]+\([^()]*(?:\([^()]*\)[^()]*)*\))$`), drop},
}

func swap(a, b string) func(string) string {
	return func(was string) string {
		if was == a {
			return b
		}
		return a
	}
}

func drop(string) string { return "do end" }

var (
	luaFunction = regexp.MustCompile(`^\s*(?:local )?function ([\w.]+)`)
	luaString   = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	luaComment  = regexp.MustCompile(`(?s)--\[\[.*?\]\]`)
	luaBegun    = regexp.MustCompile(`(\b(and|or|not)|[-+*/=<>,({]|\.\.)$`)
	luaGoesOn   = regexp.MustCompile(`^(and|or|[-+*/=<>,)}]|\.\.)`)
	inComment   = regexp.MustCompile(`[^\n]`)
)

// luaChanges returns all that can be changed in a script.
func luaChanges(name string, source []byte) (changes []*change) {
	script := strings.TrimSuffix(name[strings.LastIndexByte(name, '/')+1:], ".lua")
	text := luaComment.ReplaceAllStringFunc(string(source), func(comment string) string {
		return inComment.ReplaceAllString(comment, " ")
	})
	lines := strings.SplitAfter(text, "\n")
	codes := make([]string, len(lines)+1)
	for i, line := range lines {
		codes[i] = luaCode(strings.TrimSuffix(line, "\n"))
	}
	function, at, before := "", 0, ""
	for i, line := range lines {
		code := codes[i]
		if match := luaFunction.FindStringSubmatch(code); match != nil {
			function = "." + match[1]
		}
		part := luaBegun.MatchString(before) || luaGoesOn.MatchString(strings.TrimSpace(codes[i+1]))
		for _, k := range luaKinds {
			for _, match := range k.pattern.FindAllStringSubmatchIndex(code, -1) {
				from, to := match[2], match[3]
				if k.kind == "drop statement" && (part ||
					strings.Count(code, "(") != strings.Count(code, ")")) {
					continue
				}
				was := oneLine(line)
				if to-from < len(was) {
					was = strings.TrimSpace(line[from:to]) + " in " + was
				}
				changes = append(changes, &change{place: luaPlace, file: name, line: i + 1,
					function: script + function, kind: k.kind, was: was,
					start: at + from, end: at + to, with: k.with(line[from:to])})
			}
		}
		if trimmed := strings.TrimSpace(code); trimmed != "" {
			before = trimmed
		}
		at += len(line)
	}
	return changes
}

// luaCode is a line without its comment and without what is in its strings, of the same length.
func luaCode(line string) string {
	line = luaString.ReplaceAllStringFunc(line, func(s string) string {
		return s[:1] + strings.Repeat("_", len(s)-2) + s[:1]
	})
	if at := strings.Index(line, "--"); at >= 0 {
		line = strings.TrimRight(line[:at], " \t")
	}
	return line
}
