package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// document is a file of a report.
type document struct {
	name  string // of the file, without .md, unless --output says another
	head  func(*lab) string
	parts []*part
	goals bool // says what has been reached
}

func benchDocument(parts ...*part) *document {
	return &document{name: "bench", head: benchHead, parts: parts, goals: true}
}

func benchHead(l *lab) string {
	v := l.versions
	facts := &section{header: []string{"", ""}}
	fact := func(name, value string) { facts.row(name, value) }
	program := func(name, version, how string) {
		if version != "" {
			fact(name, version+how)
		}
	}
	fact("machine", fmt.Sprintf("%s; %s; %s open files for a process", machine(), kernel(),
		thousands(l.files)))
	if l.quick {
		fact("how", "a quick run: fewer rounds, shorter, not all workloads")
	}
	fact("meanwhile", describeOthers(l.others))
	program("Redis", v.redis, ", nothing saved to disk, no I/O threads")
	program("lockproxy", v.lockproxy, l.withArgs()+"; "+platform())
	program("HAProxy", v.haproxy, ", TCP mode, a thread for each core, which is its default")
	program("twemproxy", v.twemproxy, ", one connection to Redis, which is its default")
	program("redis-benchmark", v.benchmark, ", one thread where nothing else is said")
	fact("lock libraries", lockLibraries())
	return `# lockproxy next to other proxies

Written by ` + "`make bench`" + `; run it again for the figures of your machine. All servers and
clients share the one machine, by loopback: what one of them uses is lost to the others, so the
ratios are of everything together. The ways that are compared take turns within each round; ratios
are between runs of the same round. A figure is a median over the rounds, in brackets the least and
most of them. Locks that clients compete for are in [bench-locks.md](bench-locks.md).

` + facts.table()
}

// withArgs names the flags that lockproxy was given.
func (l *lab) withArgs() string {
	if len(l.args) == 0 {
		return ""
	}
	return " with `" + strings.Join(l.args, " ") + "`"
}

// sections are those of all jobs, in order, with the goals first.
func (d *document) sections() (list []*section) {
	var jobs []job
	for _, p := range d.parts {
		jobs = append(jobs, p.jobs...)
	}
	if d.goals {
		if s := goalSection(jobs); s != nil {
			list = append(list, s)
		}
	}
	for _, j := range jobs {
		list = append(list, j.sections()...)
	}
	return list
}

// markdown shows figures if they are there, next to the document.
func (d *document) markdown(l *lab, figures bool) string {
	name := ""
	if figures {
		name = d.name
	}
	var b strings.Builder
	b.WriteString(d.head(l))
	for _, s := range d.sections() {
		b.WriteString(s.markdown(name))
	}
	if len(l.failures) > 0 {
		b.WriteString("\n## Runs that failed\n\nThey count in no figure.\n\n")
		for _, f := range l.failures {
			fmt.Fprintf(&b, "- %s\n", f)
		}
	}
	return wrap(b.String())
}

// write writes the document to a file and its figures next to it.
func (d *document) write(l *lab, file string) error {
	for _, s := range d.sections() {
		for _, f := range s.figures {
			path := filepath.Join(filepath.Dir(file), f.file(d.name))
			if err := writeFile(path, f.drawing.SVG()); err != nil {
				return err
			}
		}
	}
	return writeFile(file, []byte(d.markdown(l, true)))
}

func writeFile(path string, data []byte) error {
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("cannot write the report: %w", err)
	}
	return nil
}
