//go:build clients

package clients_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/testwait"
)

// language is a program that uses a package of clients, which its language's own tools have installed
// into an empty project, with a real client library.
type language struct {
	clientProgram
	column     string   // of the table in clients/README.md
	lacks      []string // the features that the language or the library cannot have
	silentWait bool     // it sends no pings while it waits
	own        []string // what shows that which no other language has
	install    func(t *testing.T, out string)
}

var languages = []language{
	{column: "Python", install: installPython, clientProgram: clientProgram{name: "redis-py",
		dir: "conformance", run: []string{"/usr/bin/python3", "driver.py"},
		env: []string{"PYTHONPATH={out}"}}, lacks: []string{"prefix"},
		own: []string{"/usr/bin/python3", "python.py"}},
	{column: "asyncio", install: installPython, clientProgram: clientProgram{name: "redis-py asyncio",
		dir: "conformance", run: []string{"/usr/bin/python3", "driver_asyncio.py"},
		env: []string{"PYTHONPATH={out}"}}, lacks: []string{"prefix"},
		own: []string{"/usr/bin/python3", "python_asyncio.py"}},
}

// source copies a package of clients to a new folder, since tools write to where they build.
func source(t *testing.T, name string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(folder, os.DirFS("../../clients/"+name)); err != nil {
		t.Fatal(err)
	}
	return folder
}

// does runs a command in a folder, and fails the test if the command fails.
func does(t *testing.T, folder string, words ...string) {
	t.Helper()
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir = folder
	if printed, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, printed)
	}
}

// installPython has pip build the package and put it into a folder, without asking any index.
func installPython(t *testing.T, out string) {
	does(t, out, "/usr/bin/python3", "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
		"--no-build-isolation", "--disable-pip-version-check", "--root-user-action=ignore", "--target",
		out, source(t, "python"))
}

// ends waits for the program to end by itself.
func (p *told) ends(t *testing.T) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { // ends with the program
		for range p.lines {
		}
		ended <- p.Wait()
	}()
	return testwait.For(t, "the program ends", ended)
}

// relay relays to a proxy and counts its clients, and the words that they say.
type relay struct {
	addr        string
	connections atomic.Int64

	mu    sync.Mutex
	words map[string]int
}

func newRelay(t *testing.T, proxy string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: ln.Addr().String(), words: map[string]int{}}
	var relays sync.WaitGroup
	relays.Go(func() { // ends with the listener
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			r.connections.Add(1)
			server, err := net.Dial("tcp", proxy)
			if err != nil {
				client.Close()
				continue
			}
			relays.Go(func() { io.Copy(client, server); client.Close() })
			relays.Go(func() { r.relay(server, client); server.Close() })
		}
	})
	t.Cleanup(relays.Wait) // the programs have ended by then
	t.Cleanup(func() { ln.Close() })
	return r
}

func (r *relay) counted(word string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.words[word]
}

func (r *relay) relay(to, from net.Conn) {
	for in := bufio.NewReader(from); ; {
		line, err := in.ReadString('\n')
		r.mu.Lock()
		r.words[strings.ToUpper(strings.TrimSpace(line))]++
		r.mu.Unlock()
		if _, failed := io.WriteString(to, line); err != nil || failed != nil {
			return
		}
	}
}
