// Command links makes the Markdown of a package fit what the package has: a relative link to a file
// that is not in the directory becomes its text. With -list it changes nothing, and names those
// links; the exit status is then 1 if there are any.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A link, or code, in which there is none.
var linkOrCode = regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`|\\[((?:`[^`\n]*`|[^][`])*)\\]\\(([^)\\s]+)\\)")

func main() {
	list := flag.Bool("list", false, "name the links, and change nothing")
	flag.Parse()
	dead := 0
	err := filepath.WalkDir(flag.Arg(0), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".md" {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		kept := linkOrCode.ReplaceAllStringFunc(string(text), func(found string) string {
			parts := linkOrCode.FindStringSubmatch(found)
			target, _, _ := strings.Cut(parts[2], "#")
			if target == "" || strings.Contains(target, ":") {
				return found
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), target)); err == nil {
				return found
			}
			dead++
			if *list {
				fmt.Printf("%s: %s\n", name, parts[2])
			}
			return parts[1]
		})
		if *list || kept == string(text) {
			return nil
		}
		return os.WriteFile(name, []byte(kept), 0o644)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "links:", err)
		os.Exit(2)
	}
	if *list && dead > 0 {
		os.Exit(1)
	}
}
