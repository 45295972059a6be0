//go:build clients

package clients_test

import (
	"bufio"
	"fmt"
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
	from       string   // the package of clients
	lacks      []string // the features that the language or the library cannot have
	silentWait bool     // it sends no pings while it waits
	own        []string // what shows that which no other language has, by host and port
	ownLast    []string // words behind these
}

// installers build a package and install it into a folder, an empty project, with what the programs
// need to use it.
var installers = map[string]func(t *testing.T, out string){"python": installPython, "node": installNode,
	"go": installGo, "java": installJava, "ruby": installRuby, "php": installPHP,
	"dotnet": installDotNet, "rust": installRust}

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

// installGo has a module of its own require the module, from a folder.
func installGo(t *testing.T, out string) {
	if err := os.CopyFS(out, os.DirFS("testdata/conformance/go")); err != nil {
		t.Fatal(err)
	}
	does(t, out, "go", "mod", "edit", "-replace=lockproxy/clients/go="+source(t, "go"))
	does(t, out, "go", "build", "-race", "-o", "driver", ".")
}

const javaPath = "{out}/target/classes:{out}/m2/lockproxy/lockproxy/1.0.0/lockproxy-1.0.0.jar:" +
	"/usr/share/java/postgresql.jar"

// debianMaven has Maven take its plugins from Debian's packages, and put what it installs elsewhere.
const debianMaven = `<settings><localRepository>%s/m2</localRepository><profiles><profile><id>debian</id>
<repositories><repository><id>central</id><url>file:///usr/share/maven-repo</url></repository>
</repositories><pluginRepositories><pluginRepository><id>central</id>
<url>file:///usr/share/maven-repo</url></pluginRepository></pluginRepositories></profile></profiles>
<activeProfiles><activeProfile>debian</activeProfile></activeProfiles></settings>`

// installJava has Maven install the package, and a project of its own depend on it.
func installJava(t *testing.T, out string) {
	err := os.CopyFS(out, os.DirFS("testdata/conformance/java"))
	settings := filepath.Join(out, "settings.xml")
	if err == nil {
		err = os.WriteFile(settings, fmt.Appendf(nil, debianMaven, out), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	does(t, source(t, "java"), "mvn", "-B", "-q", "-s", settings, "install")
	does(t, out, "mvn", "-B", "-q", "-s", settings, "compile")
}

// installRuby builds the gem and installs it into a folder.
func installRuby(t *testing.T, out string) {
	does(t, source(t, "ruby"), "/usr/bin/gem", "build", "--silent", "--output", out+"/lockproxy.gem",
		"lockproxy.gemspec")
	does(t, out, "/usr/bin/gem", "install", "--silent", "--local", "--no-document", "--install-dir",
		out, "--ignore-dependencies", out+"/lockproxy.gem")
}

// installPHP has Composer require the package in a project, from a folder and from nowhere else.
func installPHP(t *testing.T, out string) {
	project := fmt.Sprintf(`{"require": {"lockproxy/lockproxy": "1.0.0"}, "repositories": [{"type":
		"path", "url": %q, "options": {"symlink": false}}, {"packagist.org": false}]}`, source(t, "php"))
	err := os.WriteFile(filepath.Join(out, "composer.json"), []byte(project), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	does(t, out, "env", "COMPOSER_DISABLE_NETWORK=1", "COMPOSER_ALLOW_SUPERUSER=1",
		"COMPOSER_HOME="+out, "/usr/bin/php", "/usr/bin/composer", "install", "--quiet")
}

// installDotNet builds the library and a program that uses it with Mono's compiler, since Debian has
// no .NET SDK that could read the project file.
func installDotNet(t *testing.T, out string) {
	copyTo(t, out, "Driver.cs")
	library := out + "/Lockproxy.dll"
	does(t, source(t, "dotnet"), "mcs", "-warnaserror", "-langversion:7", "-target:library",
		"-out:"+library, "-doc:"+out+"/Lockproxy.xml", "LockClient.cs")
	does(t, out, "mcs", "-warnaserror", "-r:"+library, "-out:driver.exe", "Driver.cs")
}

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

// installRust has cargo build a program that depends on the crate, from crates that are there.
func installRust(t *testing.T, out string) {
	crates := os.Getenv("LOCKPROXY_TEST_CRATES")
	if crates == "" {
		t.Fatal("LOCKPROXY_TEST_CRATES does not say where the crates are: make long SUITE=rust does")
	}
	config := fmt.Sprintf("[source.crates-io]\nreplace-with = \"debian\"\n\n[source.debian]\n"+
		"directory = %q\n", crates)
	err := os.CopyFS(out, os.DirFS("testdata/conformance/rust"))
	if err == nil {
		err = os.CopyFS(out+"/lockproxy", os.DirFS("../../clients/rust"))
	}
	if err == nil {
		err = os.Mkdir(out+"/.cargo", 0o700)
	}
	if err == nil {
		err = os.WriteFile(out+"/.cargo/config.toml", []byte(config), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	does(t, out, "cargo", "build", "--offline", "--quiet")
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

// installNode has npm pack the package and install it into a project, next to the clients that are
// there already. The types of the package fit those of both, also where CommonJS requires it.
func installNode(t *testing.T, out string) {
	does(t, out, "npm", "pack", "--silent", source(t, "node"))
	does(t, out, "npm", "install", "--silent", "--offline", "--no-audit", "--omit=peer",
		"--legacy-peer-deps", "./lockproxy-1.0.0.tgz")
	linkNodeClients(t, out, "ioredis", "redis", "@redis", "pg", "typescript")
	copyTo(t, out, "driver.mjs", "node.mjs", "types.mts", "types.cts")
	does(t, out, "node", "node_modules/typescript/bin/tsc", "--noEmit", "--strict", "--skipLibCheck",
		"--target", "es2022", "--module", "nodenext", "--typeRoots", "none", "types.mts", "types.cts")
}

// linkNodeClients gives a project some of the packages that are installed for these tests.
func linkNodeClients(t *testing.T, project string, names ...string) {
	t.Helper()
	modules, err := filepath.Abs("testdata/node/node_modules")
	for _, name := range names {
		if err == nil {
			err = os.Symlink(filepath.Join(modules, name), filepath.Join(project, "node_modules", name))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// copyTo copies programs, which find packages by where they are.
func copyTo(t *testing.T, folder string, names ...string) {
	t.Helper()
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("testdata/conformance", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, filepath.Base(name)), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
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
