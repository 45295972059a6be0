package panics

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const ready = "lockproxy/proxy.(*session).Ready"

// What is interrupted decides: all of it must be one client's, up to an entry.
func TestWhatIsOwn(t *testing.T) {
	for function, want := range map[string]bool{
		"runtime.gopanic":                                           true,
		"slices.DeleteFunc[...]":                                    true,
		"crypto/tls.(*Conn).Write":                                  true,
		"lockproxy/internal/resp.(*Framer).Next":                    true,
		"lockproxy/lockcmd/syntax.ParseProof":                       true,
		"lockproxy/proxy.encodeError":                               true,
		"lockproxy/proxy.answerInfo.func1":                          true,
		"lockproxy/proxy.(*dispatcher).dispatch":                    true,
		"lockproxy/proxy.(*dispatcher).dispatch.deferwrap1":         true,
		"lockproxy/proxy.(*lockEnds).watch.func1":                   true,
		"lockproxy/proxy.client.wrapped":                            true,
		"lockproxy/passthrough.(*Pipe).Flush":                       true,
		"lockproxy/passthrough.(*homeSide).writeHome":               true,
		"lockproxy/internal/cluster.(*node).relay":                  true,
		"lockproxy/proxy.(*Server).handshake":                       true,
		"main.run":                                                  false,
		"github.com/redis/go-redis/v9.(*Client).Process":            false,
		"golang.org/x/sys/unix.EpollWait":                           false,
		"lockproxy/proxy.(*Server).Stats":                           false,
		"lockproxy/proxy.(*roster).add":                             false,
		"lockproxy/proxy.(*scriptLoads).begin":                      false,
		"lockproxy/proxy.(*locker).advance":                         false,
		"lockproxy/proxy.(*lockSession).goOn":                       false,
		"lockproxy/passthrough.(*lane).add":                         false,
		"lockproxy/passthrough.(*lane).distribute":                  false,
		"lockproxy/passthrough.(*Pool).join":                        false,
		"lockproxy/passthrough.(*queue[go.shape.struct { X.y }]).z": false,
		"lockproxy/internal/cluster.(*Cluster).update":              false,
		"lockproxy/internal/eventloop.(*Iteration).Flush":           false,
		"lockproxy/internal/loopguard.MayWait":                      false,
		"lockproxy/internal/upstream.(*Upstream).DialKnown":         false,
		"lockproxy/lockcmd.(*Locks).Begin":                          false,
		"lockproxy/lockcmd/queue.(*waitQueue).leave":                false,
		"lockproxy/lockcmd/held.(*Holder).MarkSent":                 false,
		"lockproxy/of/nobody.knows":                                 false,
	} {
		if isOwn(function) != want {
			t.Errorf("%s: own %t, want %t", function, !want, want)
		}
		for _, others := range [][]string{{}, {"runtime.gopanic"}} {
			stack := append(append(others, function), "lockproxy/proxy.(*exchange).route", ready)
			if areOwn(stack) != want {
				t.Errorf("%q: own %t, want %t", stack, !want, want)
			}
			if areOwn(stack[:len(stack)-1]) {
				t.Errorf("%q is contained, though nothing says how far it goes", stack)
			}
		}
	}
}

// A panic where no client's code has begun goes on, with its value.
func TestPanicOfNobodyGoesOn(t *testing.T) {
	var err error
	value := func() (value any) {
		defer func() { value = recover() }()
		func() {
			defer Contain(&err)
			panic("nobody's")
		}()
		return nil
	}()
	if value != "nobody's" || err != nil {
		t.Errorf("%v, %v", value, err)
	}
	func() {
		defer Contain(&err)
	}()
	if err != nil || In(errors.New("another")) != nil {
		t.Errorf("a panic without one: %v", err)
	}
}

// A client's mutex that stays locked ends the process.
func TestLockedStateIsNotLeft(t *testing.T) {
	var mu sync.Mutex
	goesOn := func() (goesOn bool) {
		defer func() { recover() }()
		Free(&mu, &Panic{})
		return true
	}
	if !goesOn() {
		t.Error("a mutex that is free ends the process")
	}
	mu.Lock()
	if goesOn() {
		t.Error("a mutex that stays locked is left")
	}
}

// Whatever own and entries name is there. What was renamed would end the process.
func TestListedNamesExist(t *testing.T) {
	parsed := map[string]map[string]bool{} // by folder
	for _, list := range []map[string]bool{own, entries} {
		for name := range list {
			pkg, rest, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ".")
			dir := strings.TrimPrefix(name[:strings.LastIndex(name, "/")+1]+pkg, module)
			if parsed[dir] == nil {
				parsed[dir] = declarations(t, filepath.Join("..", "..", filepath.FromSlash(dir)))
			}
			if rest != "" && rest != "*" && !parsed[dir][rest] {
				t.Errorf("%s: %s does not exist", dir, rest)
			}
		}
	}
}

// declarations are the types and methods of a package, which must be there.
func declarations(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no package, %v", dir, err)
	}
	declared := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				declared[n.Name.Name] = true
			case *ast.FuncDecl:
				if n.Recv == nil {
					break
				}
				if star, ok := n.Recv.List[0].Type.(*ast.StarExpr); ok {
					if of, ok := star.X.(*ast.Ident); ok {
						declared["(*"+of.Name+")."+n.Name.Name] = true
					}
				}
			}
			return true
		})
	}
	return declared
}
