package mutate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
)

// goFile is one file of Go whose changes are collected.
type goFile struct {
	place, name string
	source      []byte
	set         *token.FileSet
	parents     []ast.Node
	function    string
	ends        bool // by a switch that returns a result in each case
	changes     []*change
}

// goChanges returns all that can be changed in a file of Go.
func goChanges(place, name string, source []byte) ([]*change, error) {
	f := &goFile{place: place, name: name, source: source, set: token.NewFileSet()}
	file, err := parser.ParseFile(f.set, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil || len(fn.Body.List) == 0 ||
			onlyShows.MatchString(fn.Name.Name) {
			continue
		}
		f.function = fn.Name.Name
		if fn.Recv != nil {
			f.function = typeName(fn.Recv.List[0].Type) + "." + f.function
		}
		_, f.ends = fn.Body.List[len(fn.Body.List)-1].(*ast.SwitchStmt)
		f.returnAtOnce(fn)
		ast.Inspect(fn.Body, f.see)
	}
	return f.changes, nil
}

// onlyShows are functions that people read.
var onlyShows = regexp.MustCompile(`^(String|Error|init)$|(Stats|Metrics|Log)$|^log`)

// shows are names of what people read, in a chain of names that is called.
var shows = regexp.MustCompile(
	`^(log|logger|Log|stats|Stats|metrics|counters|fmt|errors|panic|loopguard|Debug|Info|Warn|Trace)$`)

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// see collects the changes of a node, for ast.Inspect.
func (f *goFile) see(n ast.Node) bool {
	if n == nil {
		f.parents = f.parents[:len(f.parents)-1]
		return true
	}
	if call, ok := n.(*ast.CallExpr); ok && isOnlyShown(call.Fun) {
		return false
	}
	switch n := n.(type) {
	case *ast.GenDecl:
		return false // constants, mostly
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.IfStmt:
		f.condition(n)
	case *ast.ForStmt:
		if n.Cond != nil {
			f.replace("never", n.Cond, "(!"+chosen+" && ("+f.text(n.Cond)+"))")
		}
	case *ast.Ident:
		switch n.Name {
		case "true":
			f.replace("bool", n, "(!"+chosen+")")
		case "false":
			f.replace("bool", n, "("+chosen+")")
		}
	case *ast.BasicLit:
		if n.Kind == token.INT {
			f.constant(n)
		}
	case *ast.CaseClause:
		f.skipCase(n)
	}
	if stmt, ok := n.(ast.Stmt); ok && f.inList() && f.canBeDropped(stmt) {
		f.replace("drop statement", n, "if !"+chosen+" { "+f.text(n)+" }")
	}
	f.parents = append(f.parents, n)
	return true
}

func isOnlyShown(called ast.Expr) (is bool) {
	ast.Inspect(called, func(n ast.Node) bool {
		name, ok := n.(*ast.Ident)
		is = is || ok && shows.MatchString(name.Name)
		return !is
	})
	return is
}

func (f *goFile) offset(p token.Pos) int { return f.set.Position(p).Offset }

func (f *goFile) text(n ast.Node) string { return f.between(n.Pos(), n.End()) }

func (f *goFile) between(from, to token.Pos) string {
	return string(f.source[f.offset(from):f.offset(to)])
}

// replace adds a change of a node's text.
func (f *goFile) replace(kind string, n ast.Node, with string) {
	f.add(kind, f.text(n), n.Pos(), n.End(), with)
}

func (f *goFile) add(kind, was string, from, to token.Pos, with string) {
	f.changes = append(f.changes, &change{place: f.place, file: f.name, function: f.function,
		line: f.set.Position(from).Line, kind: kind, was: oneLine(was), start: f.offset(from),
		end: f.offset(to), with: with})
}

// either is one of two conditions.
func either(was, now string) string {
	return "(!" + chosen + " && (" + was + ") || " + chosen + " && (" + now + "))"
}

var opposite = map[token.Token]string{token.LAND: "||", token.LOR: "&&", token.LSS: "<=",
	token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}

func (f *goFile) binary(n *ast.BinaryExpr) {
	x, y := f.text(n.X), f.text(n.Y)
	switch n.Op {
	case token.LAND:
		f.replace("and/or", n, either(f.text(n), x+" || "+y))
		f.add("drop term", x, n.X.Pos(), n.X.End(), "("+chosen+" || ("+x+"))")
		f.add("drop term", y, n.Y.Pos(), n.Y.End(), "("+chosen+" || ("+y+"))")
	case token.LOR:
		f.replace("and/or", n, either(f.text(n), "("+x+") && ("+y+")"))
		f.add("drop term", x, n.X.Pos(), n.X.End(), "(!"+chosen+" && ("+x+"))")
		f.add("drop term", y, n.Y.Pos(), n.Y.End(), "(!"+chosen+" && ("+y+"))")
	case token.EQL, token.NEQ:
		f.replace("equal", n, "(("+f.text(n)+") != "+chosen+")")
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		f.replace("less", n, either(f.text(n), x+" "+opposite[n.Op]+" "+y))
	}
}

func (f *goFile) condition(n *ast.IfStmt) {
	cond := f.text(n.Cond)
	if b, ok := n.Cond.(*ast.BinaryExpr); !ok || b.Op != token.EQL && b.Op != token.NEQ {
		f.replace("negate condition", n.Cond, "(("+cond+") != "+chosen+")")
	}
	f.replace("always", n.Cond, "("+chosen+" || ("+cond+"))")
	kind := "never"
	if last := len(n.Body.List) - 1; last >= 0 && n.Else == nil {
		switch n.Body.List[last].(type) {
		case *ast.ReturnStmt, *ast.BranchStmt:
			kind = "drop guard"
		}
	}
	f.replace(kind, n.Cond, "(!"+chosen+" && ("+cond+"))")
}

// constant adds one to a number in a comparison, or in a statement that can be written twice.
func (f *goFile) constant(n *ast.BasicLit) {
	value, err := strconv.ParseInt(n.Value, 0, 62)
	if err != nil {
		return
	}
	more := func(in ast.Node) string {
		return f.between(in.Pos(), n.Pos()) + strconv.FormatInt(value+1, 10) +
			f.between(n.End(), in.End())
	}
	for i, parent := range slices.Backward(f.parents) {
		switch p := parent.(type) {
		case *ast.BinaryExpr:
			if p.Op.Precedence() == token.EQL.Precedence() {
				f.addConstant(n, p, either(f.text(p), more(p)))
				return
			}
		case *ast.CallExpr:
			if name, ok := p.Fun.(*ast.Ident); ok && name.Name == "make" {
				return // how much is allocated
			}
		case *ast.FuncLit, *ast.CaseClause, *ast.BlockStmt:
			return
		case *ast.ReturnStmt:
			if isList(f.parents[i-1]) {
				f.addConstant(n, p, "if "+chosen+" { "+more(p)+" }; "+f.text(p))
			}
			return
		case *ast.AssignStmt, *ast.ExprStmt:
			a, isAssign := p.(*ast.AssignStmt)
			if isList(f.parents[i-1]) && !(isAssign && a.Tok == token.DEFINE) {
				f.addConstant(n, p, "if "+chosen+" { "+more(p)+" } else { "+f.text(p)+" }")
			}
			return
		}
	}
}

func (f *goFile) addConstant(n *ast.BasicLit, in ast.Node, with string) {
	f.add("constant", n.Value+" in "+f.text(in), in.Pos(), in.End(), with)
}

func isList(n ast.Node) bool {
	switch n.(type) {
	case *ast.BlockStmt, *ast.CaseClause, *ast.CommClause:
		return true
	}
	return false
}

// inList reports whether the node that is seen is a statement of a list.
func (f *goFile) inList() bool {
	if len(f.parents) == 0 || !isList(f.parents[len(f.parents)-1]) {
		return false
	}
	return true
}

var unlocks = regexp.MustCompile(`(^|\.)R?(Lock|Unlock)\(\)`)

// canBeDropped reports whether the program compiles without a statement. The locking of mutexes
// stays: without it nothing works.
func (f *goFile) canBeDropped(n ast.Stmt) bool {
	switch n := n.(type) {
	case *ast.ExprStmt:
		call, ok := n.X.(*ast.CallExpr)
		return ok && !isOnlyShown(call.Fun) && !unlocks.MatchString(f.text(n))
	case *ast.DeferStmt:
		return !isOnlyShown(n.Call.Fun) && !unlocks.MatchString(f.text(n))
	case *ast.AssignStmt:
		return n.Tok != token.DEFINE && !isOnlyShown(n.Lhs[0])
	case *ast.IncDecStmt:
		return !isOnlyShown(n.X)
	case *ast.GoStmt, *ast.SendStmt:
		return true
	}
	return false
}

func (f *goFile) skipCase(n *ast.CaseClause) {
	if n.List == nil || len(n.Body) == 0 {
		return
	}
	was := "case " + f.between(n.List[0].Pos(), n.Colon)
	tagless := false
	if block := len(f.parents) - 1; block > 0 {
		s, ok := f.parents[block-1].(*ast.SwitchStmt)
		tagless = ok && s.Tag == nil
	}
	if tagless && len(n.List) == 1 {
		f.add("skip case", was, n.List[0].Pos(), n.List[0].End(),
			"(!"+chosen+" && ("+f.text(n.List[0])+"))")
		return
	}
	if !f.ends {
		f.add("skip case", was, n.Colon+1, n.Colon+1, " if "+chosen+" { break };")
	}
}

// returnAtOnce makes a function do nothing, where zero values of its results can be written.
func (f *goFile) returnAtOnce(fn *ast.FuncDecl) {
	values := ""
	if fn.Type.Results != nil && len(fn.Type.Results.List[0].Names) == 0 {
		for i, result := range fn.Type.Results.List {
			zero := zeroOf(result.Type)
			if zero == "" {
				return
			}
			if i > 0 {
				values += ", "
			}
			values += zero
		}
	}
	at := fn.Body.Lbrace + 1
	f.add("return at once", "body", at, at, " if "+chosen+" { return "+values+" };")
}

// zeroOf is the zero value of a type; "" if its name alone does not tell it.
func zeroOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr, *ast.MapType, *ast.FuncType, *ast.ChanType:
		return "nil"
	case *ast.ArrayType:
		if e.Len == nil {
			return "nil"
		}
	case *ast.Ident:
		switch e.Name {
		case "error", "any":
			return "nil"
		case "bool":
			return "false"
		case "string":
			return `""`
		case "int", "int64", "uint64", "uint16", "byte", "float64":
			return "0"
		}
	}
	return ""
}
