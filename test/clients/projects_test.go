//go:build clients

package clients_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"lockproxy/internal/test/proxytest"
)

// installers build a package of clients and install it into a folder, an empty project, with what
// the programs of the tests need to use it.
var installers = map[string]func(t *testing.T, out string){"python": installPython, "node": installNode,
	"go": installGo, "java": installJava, "ruby": installRuby, "php": installPHP,
	"dotnet": installDotNet, "rust": installRust}

var projects sync.Map // by the name of the package

// project is one in which a package has been installed.
type project struct {
	once   sync.Once
	folder string
}

// installed returns the project with a package, which all tests use.
func installed(t *testing.T, name string) string {
	t.Helper()
	made, _ := projects.LoadOrStore(name, new(project))
	p := made.(*project)
	p.once.Do(func() {
		folder := proxytest.Lasting.TempDir()
		installers[name](t, folder)
		p.folder = folder
	})
	if p.folder == "" {
		t.Fatalf("%s: the test that began to install it says why it failed", name)
	}
	return p.folder
}

// installGo has a module of its own require the module, from a folder.
func installGo(t *testing.T, out string) {
	if err := os.CopyFS(out, os.DirFS("testdata/conformance/go")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(out+"/lockproxy", os.DirFS("../../clients/go")); err != nil {
		t.Fatal(err)
	}
	does(t, out, "go", "mod", "edit", "-replace=lockproxy/clients/go=./lockproxy")
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
	linkNodeClients(t, out, "ioredis", "redis", "@redis", "pg", "typescript",
		"bullmq")
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
