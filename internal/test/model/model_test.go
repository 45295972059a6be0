package model

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the scripts do is modelled by hand, so it can't be derived that the model still follows
// them: who changes one has to look.
func TestModelFollowsScripts(t *testing.T) {
	manual, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Glob("../../../lockcmd/script/*.lua")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts found: %v", err)
	}
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		line := "| `" + filepath.Base(path) + "` | " + fingerprint(string(text)) + " |"
		if !strings.Contains(string(manual), line) {
			t.Errorf("%s does something else than when the model was last compared with it: "+
				"let upstream.pml do the same, run \"make long SUITE=model\", then begin its line in "+
				"README.md with\n%s", filepath.Base(path), line)
		}
	}
}

// The code that the model follows is named by its files, which are below lockcmd or here.
func TestModelNamesWhatIsThere(t *testing.T) {
	files, err := filepath.Glob("*.pml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no model found: %v", err)
	}
	for _, file := range append(files, "README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`[\w/]+\.(go|pml|lua)\b`).FindAllString(string(text), -1) {
			places, _ := filepath.Glob("../../../lockcmd/script/" + name)
			for _, place := range []string{name, "../../../lockcmd/" + name} {
				if _, err := os.Stat(place); err == nil {
					places = append(places, place)
				}
			}
			if len(places) == 0 {
				t.Errorf("%s names %s, which is not there", file, name)
			}
		}
	}
}

var luaComment = regexp.MustCompile(`(?s)--\[\[.*?\]\]|--[^\n]*`)

// fingerprint tells scripts apart that do different things; comments and white space don't count.
func fingerprint(script string) string {
	code := strings.Join(strings.Fields(luaComment.ReplaceAllString(script, "")), " ")
	sum := sha256.Sum256([]byte(code))
	return hex.EncodeToString(sum[:6])
}

func TestFingerprintHeedsCodeAlone(t *testing.T) {
	is := fingerprint("--[[ Why.\n]]\nif a then return 1 end -- so\n")
	if same := fingerprint("if a  then\n  return 1\nend"); same != is {
		t.Error("a comment, or white space, has changed the fingerprint")
	}
	if other := fingerprint("if a then return 2 end"); other == is {
		t.Error("other code has the same fingerprint")
	}
}

func TestConfigsAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range configs() {
		if seen[c.name] {
			t.Errorf("two configurations are named %q", c.name)
		}
		seen[c.name] = true
	}
}

func TestConfigsDefineWhatTheModelKnows(t *testing.T) {
	known := map[string]bool{"MAY_STICK": true} // search.go's own
	files, err := sources.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := sources.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range regexp.MustCompile(`\w+`).FindAllString(string(text), -1) {
			known[word] = true
		}
	}
	for _, c := range configs() {
		for _, d := range strings.Fields(c.with) {
			name, _, _ := strings.Cut(d, "=")
			if !known[name] {
				t.Errorf("%s: the model knows no %s: it would be explored without", c.name, name)
			}
		}
	}
}
