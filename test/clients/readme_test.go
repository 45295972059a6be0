//go:build clients

package clients_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
)

// A readmeSample is how a program of the README becomes one that can be run.
type readmeSample struct {
	file  string // its name, in a directory below testdata/dir
	dir   string
	frame string // what the README leaves out around it, with %s in its place; "" is nothing
	run   []string
	says  string
}

const readmeSays = `^my token is \d{16}\nunlocked: 1\n$`

var readmeSamples = map[string]readmeSample{
	"python": {file: "sample.py", dir: "redis-py", run: []string{"/usr/bin/python3"},
		says: readmeSays},
	"js": {file: "sample.mjs", dir: "node", run: []string{"node"}, says: readmeSays},
	"go": {file: "sample.go", dir: "go", frame: readmeGo, run: []string{"go", "run"},
		says: readmeSays},
	"php": {file: "sample.php", dir: "phpredis", run: []string{"/usr/bin/php"},
		says: readmeSays},
	"ruby": {file: "sample.rb", dir: "redis-rb", run: []string{"/usr/bin/ruby"},
		says: readmeSays},
	"java": {file: "Lock.java", dir: "java", run: []string{"java"}, says: `^:\d{16}\n:1\n$`},
}

const readmeGo = `package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"
)

func main() {
%s}
`

var readmeProgram = regexp.MustCompile("(?s)\n```([a-z]+)\n(.*?)\n```\n")

// Every program in the README is run as it is printed, except for the port.
func TestClientsOfTheReadme(t *testing.T) {
	bin := proxytest.Binary(t)
	lockproxy := strconv.Itoa(testredis.FreePort(t))
	startForClients(t, lockproxy, bin, "--listen", "127.0.0.1:"+lockproxy)
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{}
	for _, m := range readmeProgram.FindAllStringSubmatch(string(text), -1) {
		programs[m[1]] = strings.ReplaceAll(m[2]+"\n", "6380", lockproxy)
	}
	for language, s := range readmeSamples {
		t.Run(language, func(t *testing.T) {
			program, ok := programs[language]
			if !ok {
				t.Fatal("the README has no such program")
			}
			if s.frame != "" {
				program = strings.Replace(s.frame, "%s", program, 1)
			}
			dir, err := os.MkdirTemp(filepath.Join("testdata", s.dir), "readme")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			if err := os.WriteFile(filepath.Join(dir, s.file), []byte(program), 0o600); err != nil {
				t.Fatal(err)
			}
			c := clientProgram{name: language, dir: s.dir}
			printed := c.command(t, 3*time.Minute, "",
				append(s.run, filepath.Join(filepath.Base(dir), s.file)))
			if !regexp.MustCompile(s.says).MatchString(printed) {
				t.Errorf("it prints:\n%s", printed)
			}
		})
		delete(programs, language)
	}
	for language := range programs {
		if language != "console" {
			t.Errorf("no test runs the README's program in %s", language)
		}
	}
}
