//go:build clients

package clients_test

import (
	"bufio"
	"io"
	"net"
	"os"
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
	from       string   // the package of clients
	lacks      []string // the features that the language or the library cannot have
	silentWait bool     // it sends no pings while it waits
	own        []string // what shows that which no other language has, by host and port
	ownLast    []string // words behind these
}

var languages = []language{
	{column: "Python", from: "python", clientProgram: clientProgram{name: "redis-py",
		dir: "conformance", run: []string{"/usr/bin/python3", "driver.py"},
		env: []string{"PYTHONPATH={out}"}}, lacks: []string{"prefix"},
		own: []string{"/usr/bin/python3", "python.py"}},
	{column: "asyncio", from: "python", clientProgram: clientProgram{name: "redis-py asyncio",
		dir: "conformance", run: []string{"/usr/bin/python3", "driver_asyncio.py"},
		env: []string{"PYTHONPATH={out}"}}, lacks: []string{"prefix"},
		own: []string{"/usr/bin/python3", "python_asyncio.py"}},
	{column: "Node", from: "node", clientProgram: clientProgram{name: "ioredis",
		run: []string{"node", "{out}/driver.mjs"}, protocols: []string{"ioredis"}},
		lacks: []string{"fork"}, own: []string{"node", "{out}/node.mjs", "ioredis"}},
	{column: "Node", from: "node", clientProgram: clientProgram{name: "node-redis",
		run: []string{"node", "{out}/driver.mjs"}, protocols: []string{"node-redis"}},
		lacks: []string{"fork"}, own: []string{"node", "{out}/node.mjs", "node-redis"}},
	{column: "Go", from: "go", clientProgram: clientProgram{name: "go-redis",
		run: []string{"{out}/driver"}}, lacks: []string{"prefix", "fork"},
		own: []string{"{out}/driver"}, ownLast: []string{"own"}},
	{column: "Java", from: "java", clientProgram: clientProgram{name: "java",
		run: []string{"java", "-cp", javaPath, "app.Driver"}}, lacks: []string{"prefix", "fork"},
		own: []string{"java", "-cp", javaPath, "app.Driver"}, ownLast: []string{"own"}},
	{column: "Ruby", from: "ruby", silentWait: true, clientProgram: clientProgram{
		name: "redis-rb", dir: "conformance", run: []string{"/usr/bin/ruby", "driver.rb"},
		env: []string{"GEM_HOME={out}"}}, lacks: []string{"prefix", "fence in PostgreSQL"},
		own: []string{"/usr/bin/ruby", "ruby.rb"}},
	{column: "PHP", from: "php", silentWait: true, clientProgram: clientProgram{
		name: "phpredis", dir: "conformance", run: []string{"/usr/bin/php", "driver.php"},
		env: []string{"PROJECT={out}"}, silent: true}, lacks: []string{"cancel a wait"}},
	{column: ".NET", from: "dotnet", clientProgram: clientProgram{name: "dotnet",
		run: []string{"mono", "{out}/driver.exe"}},
		lacks: []string{"prefix", "fork", "fence in PostgreSQL"},
		own:   []string{"mono", "{out}/driver.exe"}, ownLast: []string{"own"}},
}

// newerRuby is the gem with the redis-rb of a newer Debian release. The colon stands for the gems that
// are installed.
var newerRuby = []language{{column: "Ruby", from: "ruby", silentWait: true, clientProgram: clientProgram{
	name: "redis-rb 5", dir: "conformance", run: []string{"/usr/bin/ruby", "driver.rb"},
	env: []string{"GEM_HOME={out}", "GEM_PATH=" + os.Getenv("LOCKPROXY_TEST_GEMS") + ":"}},
	lacks: []string{"prefix", "fence in PostgreSQL"}, own: []string{"/usr/bin/ruby", "ruby.rb"}}}

// rustLanguages take longer to compile than all others together, and only Debian's unstable packages
// have what they need.
var rustLanguages = []language{
	{column: "Rust", from: "rust", silentWait: true, clientProgram: clientProgram{name: "rust",
		run: []string{"{out}/target/debug/driver"}, protocols: []string{"sync"},
		silent: true},
		lacks: []string{"cancel a wait", "prefix", "fork", "fence in PostgreSQL"}},
	{column: "tokio", from: "rust", clientProgram: clientProgram{name: "rust tokio",
		run: []string{"{out}/target/debug/driver"}, protocols: []string{"tokio"}},
		lacks: []string{"prefix", "fork", "fence in PostgreSQL"}},
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
