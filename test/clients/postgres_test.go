//go:build clients

package clients_test

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// postgres is a PostgreSQL server with the table and the function of clients/postgresql, and a table
// that programs write to.
type postgres struct {
	t    *testing.T
	port string
	bin  string
}

// startPostgres starts a server. PostgreSQL refuses to run as root.
func startPostgres(t *testing.T) *postgres {
	t.Helper()
	installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(installed) == 0 {
		t.Fatal("PostgreSQL is not installed: run make deps-clients")
	}
	db := &postgres{t: t, bin: filepath.Dir(installed[len(installed)-1]),
		port: strconv.Itoa(testredis.FreePort(t))}
	dir, err := os.MkdirTemp("", "postgres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Getuid() == 0 {
		account, err := user.Lookup("postgres")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(account.Uid)
		gid, _ := strconv.Atoi(account.Gid)
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	command := func(words ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(db.bin, words[0]), words[1:]...)
		cmd.Dir, cmd.SysProcAttr = dir, attr
		return cmd
	}
	made := command("initdb", "-D", dir+"/data", "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8")
	if printed, err := made.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	server := command("postgres", "-D", dir+"/data", "-p", db.port, "-k", dir, "-c",
		"listen_addresses=127.0.0.1", "-c", "fsync=off")
	var log testredis.LogBuffer
	server.Stdout, server.Stderr = &log, &log
	if err := testredis.StartProcess(server); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(syscall.SIGQUIT)
		server.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	testwait.Until(t, "PostgreSQL answers", func() bool {
		_, err := db.try("SELECT 1")
		return err == nil
	})
	text, err := os.ReadFile("../../clients/postgresql/lockproxy_fence.sql")
	if err != nil {
		t.Fatal(err)
	}
	db.ask(string(text))
	db.ask("CREATE TABLE writes (value text)")
	return db
}

func (db *postgres) try(sql string) (string, error) {
	cmd := exec.Command(filepath.Join(db.bin, "psql"), "-h", "127.0.0.1", "-p", db.port, "-U",
		"postgres", "-d", "postgres", "-qAtX", "-v", "ON_ERROR_STOP=1", "-c", sql)
	printed, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(printed)), err
}

func (db *postgres) ask(sql string) string {
	db.t.Helper()
	printed, err := db.try(sql)
	if err != nil {
		db.t.Fatalf("%s: %v: %s", sql, err, printed)
	}
	return printed
}

// env has the clients of all languages find the server.
func (db *postgres) env() []string {
	return []string{"PGHOST=127.0.0.1", "PGPORT=" + db.port, "PGUSER=postgres", "PGDATABASE=postgres"}
}

// fenceSQL: a holder that is paused, and loses its lock meanwhile, writes nothing to PostgreSQL
// afterwards. What it had begun to write before is finished before the next holder writes.
func (c *conformance) fenceSQL() {
	key := c.key("sql:") + strings.ReplaceAll(c.c.name, " ", "-")
	wrote := func(want ...string) {
		c.Helper()
		c.equal("what is written", c.db.ask(fmt.Sprintf("SELECT string_agg(value, ' ' ORDER BY value) "+
			"FROM writes WHERE value LIKE '%s:%%'", key)), strings.Join(want, " "))
	}
	value := func(n int) string { return fmt.Sprintf("%s:%d", key, n) }

	one, two := c.start(c.db.env()...), c.start(c.db.env()...)
	one.does("lock "+key, aToken)
	one.does("sql "+value(1), "written")
	one.does("begin "+value(2), "begun")
	one.Process.Signal(syscall.SIGSTOP)
	c.ask("UNLOCK " + key + " FORCE")
	two.does("lock "+key, aToken)
	two.tell("sql " + value(3))
	testwait.Until(c, "the next holder waits for the transaction of the first", func() bool {
		return c.db.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "+
			"query LIKE '%lockproxy_fence%'") != "0"
	})
	wrote(value(1))
	one.Process.Signal(syscall.SIGCONT)
	one.does("commit", "written")
	two.says("written")
	wrote(value(1), value(2), value(3))
	one.Process.Signal(syscall.SIGSTOP)
	one.tell("sql " + value(4))
	two.does("sql "+value(5), "written")
	one.Process.Signal(syscall.SIGCONT)
	one.says("lost")
	two.does("leave", "released")
	wrote(value(1), value(2), value(3), value(5))
}
