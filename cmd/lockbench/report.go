package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// report measures what the documents are about, and writes them. Nothing is written
// unless all was measured.
func report(ctx context.Context, f *flags, docs []*document, stdout io.Writer, p *progress) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took more than %v", limit))
	defer cancel()
	if err := writable(f.Output); err != nil {
		return err
	}
	l, err := measureAll(ctx, f, docs, p)
	p.end()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return fmt.Errorf("ended without a report: %w", cause)
		}
		return err
	}
	for _, d := range docs {
		if _, err := io.WriteString(stdout, d.markdown(l, false)); err != nil {
			return err
		}
	}
	if err := writeAll(l, docs, f.Output); err != nil {
		return err
	}
	if len(l.failures) > 0 {
		return fmt.Errorf("%d runs failed: see the end of the report", len(l.failures))
	}
	return nil
}

// writable makes the directory that the report goes to: better to fail now than when all is
// measured.
func writable(output string) error {
	if output == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	probe, err := os.CreateTemp(filepath.Dir(output), ".lockbench")
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// writeAll writes the first document to the file named, and others next to it.
func writeAll(l *lab, docs []*document, output string) error {
	if output == "" {
		return nil
	}
	for i, d := range docs {
		file := output
		if i > 0 {
			file = filepath.Join(filepath.Dir(output), d.name+".md")
		}
		if err := d.write(l, file); err != nil {
			return err
		}
	}
	return nil
}

func measureAll(
	ctx context.Context, f *flags, docs []*document, p *progress,
) (l *lab, err error) {
	dir, err := os.MkdirTemp("", "lockbench")
	if err != nil {
		return nil, fmt.Errorf("cannot make a directory for the servers: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	parts := partsOf(docs)
	l = &lab{ctx: ctx, progress: p, dir: dir, files: raiseFileLimit(), quick: f.Quick,
		args: strings.Fields(f.ProxyArgs)}
	for _, part := range parts {
		p.total += part.steps()
		if part.others {
			if err := install(ctx); err != nil {
				return nil, err
			}
		}
	}
	if l.proxy, err = proxyToMeasure(ctx, f.Proxy, l.dir); err != nil {
		return nil, err
	}
	l.versions = programVersions(l.proxy, f.Proxy == "")
	watch := startWatch()
	for _, part := range parts {
		if err := l.measure(part); err != nil {
			return nil, err
		}
	}
	l.others = watch.others()
	if l.others > quiet {
		p.note("%s", describeOthers(l.others))
	}
	return l, nil
}

// partsOf is the parts of all documents; one that is in several is measured once.
func partsOf(docs []*document) (parts []*part) {
	seen := map[*part]bool{}
	for _, d := range docs {
		for _, p := range d.parts {
			if !seen[p] {
				parts = append(parts, p)
			}
			seen[p] = true
		}
	}
	return parts
}
