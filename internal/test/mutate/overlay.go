package mutate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/build"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A program that has the changes reads the number of its change from changeVariable, and writes the
// numbers of all changes that it reaches to the file of reachVariable.
const (
	changeVariable = "LOCKPROXY_TEST_CHANGE"
	reachVariable  = "LOCKPROXY_TEST_CHANGES_REACHED"
)

// An overlay is the drawn changes, written to files that the compiler reads in place of the tree's.
type overlay struct {
	root, dir string
	changes   []*change
	packages  map[string]string // names, by folder
	written   map[string]string // what is read in place of which file
}

// listed returns the Go files, or scripts, of a place that are compiled here.
func listed(root, place string) (files []string, packageName string, err error) {
	dir := place
	if place == luaPlace {
		dir = luaPackage
	}
	p, err := build.ImportDir(filepath.Join(root, dir), 0)
	if err != nil {
		return nil, "", err
	}
	names := p.GoFiles
	if place == luaPlace {
		found, err := filepath.Glob(filepath.Join(root, dir, "*.lua"))
		if err != nil {
			return nil, "", err
		}
		names = nil
		for _, path := range found {
			names = append(names, filepath.Base(path))
		}
	}
	for _, name := range names {
		if name != "stats.go" {
			files = append(files, dir+"/"+name)
		}
	}
	return files, p.Name, nil
}

// allChanges returns what can be changed at a place, and the package's name.
func allChanges(root, place string) (changes []*change, packageName string, err error) {
	files, packageName, err := listed(root, place)
	if err != nil {
		return nil, "", err
	}
	for _, file := range files {
		source, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, "", err
		}
		found := luaChanges(file, source)
		if place != luaPlace {
			if found, err = goChanges(place, file, source); err != nil {
				return nil, "", err
			}
		}
		changes = append(changes, found...)
	}
	numberSame(changes)
	return changes, packageName, nil
}

// write writes the changed files, and the map of them for the compiler.
func (o *overlay) write() error {
	o.written = map[string]string{}
	byFile, byDir := map[string][]*change{}, map[string][]*change{}
	for i, c := range o.changes {
		c.number = i + 1
		byFile[c.file] = append(byFile[c.file], c)
		byDir[filepath.Dir(c.file)] = append(byDir[filepath.Dir(c.file)], c)
	}
	for file, changes := range byFile {
		if strings.HasSuffix(file, ".lua") {
			continue
		}
		source, err := os.ReadFile(filepath.Join(o.root, file))
		if err != nil {
			return err
		}
		if err := o.put(file, changed(source, changes)); err != nil {
			return err
		}
	}
	for dir, changes := range byDir {
		if err := o.put(dir+"/mutate_chosen.go", chooser(o.packages[dir], changes)); err != nil {
			return err
		}
		isScript := func(c *change) bool { return c.place == luaPlace }
		if slices.ContainsFunc(changes, isScript) {
			if err := o.putReader(); err != nil {
				return err
			}
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": o.written})
	if err != nil {
		return err
	}
	return os.WriteFile(o.file(), text, 0o600)
}

func (o *overlay) file() string { return filepath.Join(o.dir, "overlay.json") }

func (o *overlay) put(file, text string) error {
	path := filepath.Join(o.dir, strings.ReplaceAll(file, "/", "+"))
	o.written[filepath.Join(o.root, file)] = path
	return os.WriteFile(path, []byte(text), 0o600)
}

// putReader has the scripts read by the chooser's embedded.
func (o *overlay) putReader() error {
	const file, reads = luaPackage + "/script.go", "sources.ReadFile("
	path := filepath.Join(o.root, file)
	if written := o.written[path]; written != "" {
		path = written
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(source), reads) {
		return fmt.Errorf("%s does not read the scripts by %s", file, reads)
	}
	return o.put(file, strings.Replace(string(source), reads, "embedded{sources}.ReadFile(", 1))
}

// changed is a file with all of its changes, none of which is chosen yet.
func changed(source []byte, changes []*change) string {
	changes = slices.SortedFunc(slices.Values(changes),
		func(a, b *change) int { return cmp.Compare(a.start, b.start) })
	var text strings.Builder
	at := 0
	for _, c := range changes {
		text.Write(source[at:c.start])
		// The compiler's errors name the change in place of a line. The line after it is as before.
		fmt.Fprintf(&text, "/*line change:%d*/%s/*line %s:%d*/", c.number,
			strings.ReplaceAll(c.with, chosen, fmt.Sprintf("isChosen(%d)", c.number)),
			filepath.Base(c.file), c.line)
		at = c.end
	}
	text.Write(source[at:])
	return text.String()
}

// chooser is a file of a package that has changes.
func chooser(packageName string, changes []*change) string {
	var scripts strings.Builder
	for _, c := range changes {
		if c.place == luaPlace {
			fmt.Fprintf(&scripts, "\t%d: {%q, %d, %d, %q},\n", c.number, filepath.Base(c.file), c.start,
				c.end, c.with)
		}
	}
	text := fmt.Sprintf(chooserText, packageName, changeVariable, reachVariable)
	if scripts.Len() > 0 {
		text += fmt.Sprintf(scriptsText, scripts.String())
		text = strings.Replace(text, "import (\n", "import (\n\t\"embed\"\n", 1)
	}
	return text
}

const chooserText = `package %s

import (
	"os"
	"strconv"
	"sync"
)

var (
	chosenChange, _ = strconv.Atoi(os.Getenv(%q))
	reachedFile     = os.Getenv(%q)
	reachedChanges  sync.Map
)

func isChosen(n int) bool {
	if reachedFile != "" {
		reachChange(n)
	}
	return n == chosenChange
}

func reachChange(n int) {
	if _, known := reachedChanges.LoadOrStore(n, true); known {
		return
	}
	file, err := os.OpenFile(reachedFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	file.WriteString(strconv.Itoa(n) + "\n")
}
`

const scriptsText = `
var changedScripts = map[int]struct {
	file       string
	start, end int
	with       string
}{
%s}

type embedded struct{ embed.FS }

func (e embedded) ReadFile(name string) ([]byte, error) {
	text, err := e.FS.ReadFile(name)
	if c, ok := changedScripts[chosenChange]; ok && c.file == name {
		text = []byte(string(text[:c.start]) + c.with + string(text[c.end:]))
	}
	return text, err
}
`

// refused finds the changes, by the compiler's errors, that do not compile.
var refused = regexp.MustCompile(`\bchange:(\d+):`)

// draw draws count changes of each place that compile together. Changes known to be
// equivalent are drawn, too, but not compiled.
func (o *overlay) draw(
	ctx context.Context, all [][]*change, count int, equivalent map[string]string,
) (drawn []*change, err error) {
	dropped := map[*change]bool{}
	for {
		drawn, o.changes = nil, nil
		for _, list := range all {
			n := 0
			for _, c := range list {
				if n == count || dropped[c] || slices.ContainsFunc(drawn, c.overlaps) {
					continue
				}
				n++
				drawn = append(drawn, c)
				if equivalent[c.key()] == "" {
					o.changes = append(o.changes, c)
				}
			}
		}
		if err := o.write(); err != nil {
			return nil, err
		}
		args := []string{"build", "-overlay", o.file()}
		for dir := range o.packages {
			args = append(args, "./"+dir)
		}
		out, err := o.command(ctx, o.root, "go", args...).CombinedOutput()
		if err == nil {
			return drawn, nil
		}
		found := refused.FindAllSubmatch(out, -1)
		if found == nil {
			return nil, fmt.Errorf("the changes do not compile: %w: %s", err, out)
		}
		for _, match := range found {
			number, _ := strconv.Atoi(string(match[1]))
			dropped[o.changes[number-1]] = true
		}
	}
}
