package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	says        = regexp.MustCompile(`^(New|Errorf|Debug|Info|Warn|Error)$`)
	textClause  = regexp.MustCompile(`(?:^|[:;] )(?:[Ww]hat|[Ww]hatever|[Ww]hoever|[Ww]hether) `)
	noSubject   = regexp.MustCompile(`^(What|Whatever|That|Which|Whoever|Whether|It|They|These|Those) `)
	notProduct  = regexp.MustCompile(`_test\.go$|testdata/|^(examples|clients|deploy)/`)
	clauseParts = regexp.MustCompile(`[:;.] `)
)

// saidFaults are the rules that the text of an error or a line of the log breaks.
func saidFaults(text string) (found []string) {
	if textClause.MatchString(text) {
		found = append(found, "has a clause as its subject: want a noun")
	}
	for _, part := range clauseParts.Split(text, -1) {
		if n := len(strings.Fields(part)); n > maxWords {
			found = append(found, fmt.Sprintf("has %d words: want at most %d", n, maxWords))
		}
	}
	return found
}

// said is the text at the front of an expression: a string, or the first ones of a sum.
func said(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return said(e.X) + said(e.Y)
	case *ast.BasicLit:
		text, _ := strconv.Unquote(e.Value)
		return text
	}
	return "…"
}

// Errors, lines of the log and comments of exported names have nouns as their subjects.
func TestProseOfTheProgram(t *testing.T) {
	files, err := exec.Command("git", "-C", repository, "ls-files", "*.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	texts, comments := 0, 0
	for name := range strings.FieldsSeq(string(files)) {
		if notProduct.MatchString(name) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), repository+"/"+name, nil,
			parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			var doc *ast.CommentGroup
			switch n := n.(type) {
			case *ast.CallExpr:
				f, ok := n.Fun.(*ast.SelectorExpr)
				if !ok || len(n.Args) == 0 || !says.MatchString(f.Sel.Name) {
					break
				}
				texts++
				for _, fault := range saidFaults(said(n.Args[0])) {
					t.Errorf("%s: a text %s: %s", name, fault, said(n.Args[0]))
				}
			case *ast.FuncDecl:
				doc = n.Doc
			case *ast.GenDecl:
				doc = n.Doc
			case *ast.TypeSpec:
				doc = n.Doc
			case *ast.Field:
				doc = n.Doc
			}
			if doc != nil {
				comments++
				if noSubject.MatchString(doc.Text()) {
					t.Errorf("%s: a comment begins with a clause or a pronoun: %s", name, doc.Text())
				}
			}
			return true
		})
	}
	if texts < 300 || comments < 2000 {
		t.Errorf("only %d texts and %d comments", texts, comments)
	}
}

// The rules see clauses and long sentences, and nothing else.
func TestProseOfTheProgramRules(t *testing.T) {
	for text, want := range map[string]int{
		"whether the lock is held is unknown": 1, "UPSTREAM gone: what was sent is lost": 1,
		"cannot see what was sent: try again":               0,
		strings.Repeat("word ", maxWords+1) + "; and a few": 1,
	} {
		if got := saidFaults(text); len(got) != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
