package loopguard

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// packages are those that loops run.
var packages = []string{"proxy", "passthrough", "lockcmd", "lockcmd/background", "internal/cluster",
	"internal/panics", "internal/upstream"}

// Each function that waits calls MayWait. Functions within a function count by themselves: others
// run those, mostly in goroutines of their own, which is for their callers to see to.
func TestWhatWaitsSaysSo(t *testing.T) {
	for _, dir := range packages {
		files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(dir), "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			set := token.NewFileSet()
			parsed, err := parser.ParseFile(set, file, source, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range parsed.Decls {
				f, ok := d.(*ast.FuncDecl)
				if ok && f.Body != nil {
					if at := firstWait(f.Body); at.IsValid() && !callsMayWait(f.Body) {
						t.Errorf("%s: %s waits, and does not call loopguard.MayWait",
							set.Position(at), f.Name.Name)
					}
				}
			}
		}
	}
}

// waits are functions that wait for a time or for a file.
var waits = map[string]bool{"Sleep": true, "ReadAt": true, "WriteAt": true, "CreateTemp": true,
	"OpenFile": true, "Create": true, "ReadFile": true, "WriteFile": true}

// firstWait is where a body waits first: for a channel, a condition or a time, or for goroutines.
func firstWait(body ast.Node) (at token.Pos) {
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.SelectStmt:
			if !hasDefault(n) && !at.IsValid() {
				at = n.Pos()
			}
			for _, c := range n.Body.List { // what is received there
				for _, s := range c.(*ast.CommClause).Body {
					if in := firstWait(s); in.IsValid() && !at.IsValid() {
						at = in
					}
				}
			}
			return false
		case *ast.UnaryExpr:
			if n.Op == token.ARROW && !at.IsValid() {
				at = n.Pos()
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && !at.IsValid() &&
				(waits[f.Sel.Name] || f.Sel.Name == "Wait" && len(n.Args) == 0) {
				at = n.Pos()
			}
		}
		return true
	})
	return at
}

func hasDefault(s *ast.SelectStmt) bool {
	for _, c := range s.Body.List {
		if c.(*ast.CommClause).Comm == nil {
			return true
		}
	}
	return false
}

func callsMayWait(body ast.Node) (calls bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if f, ok := n.(*ast.SelectorExpr); ok && f.Sel.Name == "MayWait" {
			calls = true
		}
		return !calls
	})
	return calls
}
