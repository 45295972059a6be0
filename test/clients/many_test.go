//go:build clients

package clients_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// Clients of each library, as it is when nothing is set but the database, take few connections of
// Redis, though there are 10,000 of them.
func TestClientsAreManyAndConnectionsFew(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := proxytest.StartProcess(t, "--upstream", server.URL(), "--max-clients", "20000")
	var programs []*manyProgram
	const each = 834 // a program can open 1,024 files as a rule
	for _, words := range [][]string{
		{"redis-py", "/usr/bin/python3", "many.py"},
		{"predis", "/usr/bin/php", "many.php"},
		{"phpredis", "/usr/bin/php", "many.php"},
	} {
		for _, database := range []string{"0", "0", "0", "1"} {
			programs = append(programs, startMany(t, words[0], p.Addr, each, database, words[1:]))
		}
	}
	for _, program := range programs {
		program.says("asked")
	}
	few := func() bool { return connections(t, server) <= 50 }
	testwait.Until(t, "Redis has few connections", few)
	t.Logf("%d connections for %d clients", connections(t, server), each*len(programs))
	for _, program := range programs {
		program.ends("asked again")
	}
	testwait.Until(t, "Redis has few connections", few)
}

// So do those of a library that greets with HELLO and CLIENT SETINFO, and tells a database.
func TestClientsThatGreetAreManyAndConnectionsFew(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := proxytest.StartProcess(t, "--upstream", server.URL())
	var clients []*redis.Client
	for i := range 1000 {
		c := redis.NewClient(testredis.Patient(&redis.Options{Addr: p.Addr, DB: i % 2}))
		defer c.Close()
		clients = append(clients, c)
	}
	ask := func() {
		for _, c := range clients {
			if err := c.Get(proxytest.Ctx, "many").Err(); err != redis.Nil {
				t.Fatal(err)
			}
		}
	}
	ask()
	few := func() bool { return connections(t, server) <= 50 }
	testwait.Until(t, "Redis has few connections", few)
	t.Logf("%d connections for %d clients", connections(t, server), len(clients))
	ask()
	testwait.Until(t, "Redis has few connections", few)
}

// connections is how many clients Redis has but for the one that asks.
func connections(t *testing.T, server *testredis.Server) (n int) {
	t.Helper()
	_, text, _ := strings.Cut(server.Ask("INFO", "clients"), "connected_clients:")
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n - 1
}

// manyProgram is a program of testdata with many clients, which all ask once when it starts and
// once when its input ends.
type manyProgram struct {
	t     *testing.T
	cmd   *exec.Cmd
	input io.Closer
	said  chan string
}

func startMany(t *testing.T, dir, addr string, clients int, database string,
	words []string) *manyProgram {
	t.Helper()
	host, port, _ := net.SplitHostPort(addr)
	p := &manyProgram{t: t, said: make(chan string)}
	p.cmd = exec.Command(words[0], append(words[1:], host, port, fmt.Sprint(clients), database)...)
	p.cmd.Dir = filepath.Join("testdata", dir)
	output, writer := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = writer, writer
	input, err := p.cmd.StdinPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.input = input
	t.Cleanup(func() { p.cmd.Process.Kill() })
	go func() { // ends with the program
		defer close(p.said)
		lines := bufio.NewScanner(output)
		for lines.Scan() {
			p.said <- lines.Text()
		}
	}()
	go func() { // ends with the program
		p.cmd.Wait()
		writer.Close()
	}()
	return p
}

func (p *manyProgram) says(want string) {
	p.t.Helper()
	if got := testwait.For(p.t, "it says "+want, p.said); got != want {
		p.t.Fatalf("%s says %q, want %q", p.cmd.Dir, got, want)
	}
}

func (p *manyProgram) ends(want string) {
	p.t.Helper()
	p.input.Close()
	p.says(want)
	if got, more := <-p.said; more {
		p.t.Errorf("%s says %q", p.cmd.Dir, got)
	}
}
