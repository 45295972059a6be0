package testrules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Counts is what one file, or several, have of each kind.
type Counts struct {
	Times    int // comparisons of how long something took
	Sleeps   int // calls of time.Sleep, and of what is one by another name
	Timeouts int // limits of time that a test or a client gives itself
	Leases   int // locks that expire while a test may still wait
}

func (c Counts) plus(o Counts) Counts {
	return Counts{c.Times + o.Times, c.Sleeps + o.Sleeps, c.Timeouts + o.Timeouts,
		c.Leases + o.Leases}
}

// within reports whether nothing is more than in o.
func (c Counts) within(o Counts) bool {
	return c.Times <= o.Times && c.Sleeps <= o.Sleeps && c.Timeouts <= o.Timeouts &&
		c.Leases <= o.Leases
}

// helpers are the packages that tests are made with. testwait, which waits for all others, is none.
var helpers = []string{"internal/test/badlink", "internal/test/proxytest", "internal/test/testredis"}

// apart are folders that are not counted: tests in virtual time may do as they like, and the others
// have examples of what is counted.
var apart = []string{"internal/test/testrules", "internal/test/testwait", "test/locks/virtual"}

// Count counts in the files below root that have something to count, by their names from there.
func Count(root string) (map[string]Counts, error) {
	counts := map[string]Counts{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		name = filepath.ToSlash(name)
		if d.IsDir() {
			if slices.Contains(apart, name) || d.Name() == "testdata" ||
				name != "." && strings.HasPrefix(d.Name(), ".") {
				return filepath.SkipDir
			}
			return nil
		}
		helper := slices.ContainsFunc(helpers,
			func(dir string) bool { return strings.HasPrefix(name, dir+"/") })
		if !strings.HasSuffix(name, "_test.go") && !(helper && strings.HasSuffix(name, ".go")) {
			return nil
		}
		if c, err := countFile(path, nil); err != nil {
			return err
		} else if c != (Counts{}) {
			counts[name] = c
		}
		return nil
	})
	return counts, err
}

// countFile counts in a file; in src, if that isn't nil.
func countFile(path string, src any) (Counts, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments)
	if err != nil {
		return Counts{}, err
	}
	if isVirtual(file) {
		return Counts{}, nil
	}
	c := counter{parts: map[*ast.BinaryExpr]bool{}}
	for _, decl := range file.Decls {
		c.durations = map[string]bool{}
		ast.Inspect(decl, c.see)
	}
	return c.Counts, nil
}

// isVirtual reports whether a file's tests run in virtual time, and may do as they like.
func isVirtual(file *ast.File) bool {
	return slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool {
		return i.Path.Value == `"testing/synctest"` ||
			strings.HasSuffix(i.Path.Value, `/internal/test/virtualtest"`)
	})
}

type counter struct {
	Counts
	durations map[string]bool          // variables with how long something took, in this function
	parts     map[*ast.BinaryExpr]bool // sums that have been counted as parts of others
}

func (c *counter) see(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return !setsDeadline(n.Name.Name) // of a connection: it is told what the limit is
	case *ast.AssignStmt:
		for i, right := range n.Rhs {
			if name, ok := n.Lhs[i].(*ast.Ident); ok && measures(right) {
				c.durations[name.Name] = true
			}
		}
	case *ast.BinaryExpr:
		switch n.Op {
		case token.LSS, token.GTR, token.LEQ, token.GEQ:
			if c.isDuration(n.X) || c.isDuration(n.Y) {
				c.Times++
			}
		case token.ADD:
			c.joined(n)
		}
	case *ast.CallExpr:
		c.call(n)
		c.words(n.Args)
	case *ast.CompositeLit:
		c.words(n.Elts)
	case *ast.BasicLit:
		if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
			c.Leases += shortLeases(lockCommand, text)
		}
	}
	return true
}

func (c *counter) isDuration(e ast.Expr) bool {
	found := measures(e)
	ast.Inspect(e, func(n ast.Node) bool {
		name, ok := n.(*ast.Ident)
		found = found || ok && c.durations[name.Name]
		return !found
	})
	return found
}

// measures reports whether an expression has time.Since, time.Until or Sub in it.
func measures(e ast.Expr) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if ok {
			name := called(call)
			found = found || name == "time.Since" || name == "time.Until" || strings.HasSuffix(name, ".Sub")
		}
		return !found
	})
	return found
}

// timeouts are calls that limit a time.
var timeouts = []string{"context.WithTimeout", "context.WithDeadline", "net.DialTimeout",
	"time.After", "time.AfterFunc", "time.NewTimer", "time.NewTicker", "time.Tick"}

func (c *counter) call(call *ast.CallExpr) {
	name := called(call)
	_, method, _ := strings.Cut(name, ".")
	switch {
	case name == "time.Sleep", name == "outlast": // the latter is of test/faults
		c.Sleeps++
	case slices.Contains(timeouts, name):
		c.Timeouts++
	case setsDeadline(method):
		if !isPatience(call) {
			c.Timeouts++
		}
	case (method == "After" || method == "Before") && isNow(call): // time.Now().After(deadline)
		c.Timeouts++
	case method == "lock": // of a test's own client: key, lease
		for _, arg := range call.Args {
			if lease, ok := arg.(*ast.BasicLit); ok {
				c.Leases += shortLeases(number, lease.Value)
			}
		}
	case method == "Lock" && len(call.Args) > 0:
		ast.Inspect(call.Args[0], func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok {
				text, _ := strconv.Unquote(lit.Value)
				c.Leases += shortLeases(lockArgs, text)
			}
			return true
		})
	}
}

// joined counts leases of commands that are put together: "LOCK " + key + " 30".
func (c *counter) joined(sum *ast.BinaryExpr) {
	if c.parts[sum] {
		return
	}
	whole, alone := "", 0
	var add func(e ast.Expr)
	add = func(e ast.Expr) {
		switch e := e.(type) {
		case *ast.BinaryExpr:
			c.parts[e] = true
			add(e.X)
			add(e.Y)
		case *ast.BasicLit:
			text, _ := strconv.Unquote(e.Value)
			whole += text
			alone += shortLeases(lockCommand, text)
		default:
			whole += "x"
		}
	}
	add(sum)
	c.Leases += max(shortLeases(lockCommand, whole)-alone, 0)
}

// leaseAt is how many words behind a command that locks, or a flag of lockproxy run, the lease is.
var leaseAt = map[string]int{"LOCK": 2, "ONCE": 2, "RELOCK": 3, "LOCKALL": 1, "--timeout": 1}

// words counts leases of commands whose words are values of their own.
func (c *counter) words(list []ast.Expr) {
	for i, e := range list {
		command, ok := e.(*ast.BasicLit)
		if !ok || command.Kind != token.STRING {
			continue
		}
		name, _ := strconv.Unquote(command.Value)
		if at := i + leaseAt[name]; at > i && at < len(list) {
			if lease, ok := list[at].(*ast.BasicLit); ok {
				c.Leases += shortLeases(number, strings.Trim(lease.Value, "`\""))
			}
		}
	}
}

// setsDeadline reports whether a method is SetDeadline, or one for reads or writes.
func setsDeadline(method string) bool {
	return strings.HasPrefix(method, "Set") && strings.HasSuffix(method, "Deadline")
}

// called is what a call calls: f, x.f, or .f if x is more than a name.
func called(call *ast.CallExpr) string {
	if f, ok := call.Fun.(*ast.Ident); ok {
		return f.Name
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if x, ok := sel.X.(*ast.Ident); ok {
		return x.Name + "." + sel.Sel.Name
	}
	return "." + sel.Sel.Name
}

// isNow reports whether a method is called on time.Now().
func isNow(call *ast.CallExpr) bool {
	sel := call.Fun.(*ast.SelectorExpr)
	x, ok := sel.X.(*ast.CallExpr)
	return ok && called(x) == "time.Now"
}

// isPatience reports whether a deadline is that of all tests, or none, or has passed: a test that
// sets one plays a machine that stops.
func isPatience(call *ast.CallExpr) bool {
	if len(call.Args) != 1 {
		return false
	}
	if _, none := call.Args[0].(*ast.CompositeLit); none {
		return true
	}
	arg, ok := call.Args[0].(*ast.CallExpr)
	return ok && (called(arg) == "testwait.Deadline" || called(arg) == "time.Unix")
}

var (
	lockCommand = regexp.MustCompile(
		`\b(?:LOCK \S+|RELOCK \S+ \S+|LOCKALL|ONCE \S+) (\d+(?:\.\d+)?)(?:[ \r]|$)`)
	number   = regexp.MustCompile(`^(\d+(?:\.\d+)?)$`)
	lockArgs = regexp.MustCompile(`^[^ ]* (\d+(?:\.\d+)?)(?: |$)`)
)

// shortest is the shortest lease, in seconds, that outlives all that a test waits for: see
// testwait.Patience.
const shortest = 300

func shortLeases(lease *regexp.Regexp, text string) (n int) {
	for _, match := range lease.FindAllStringSubmatch(text, -1) {
		if seconds, err := strconv.ParseFloat(match[1], 64); err == nil && seconds < shortest {
			n++
		}
	}
	return n
}
