package commands

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// answersInDocs is how docs/cluster.md puts what an answer is made of.
var answersInDocs = map[Join]string{
	First: "one for all", Sum: "the sum", Min: "the least", Max: "the greatest",
	MinEach: "the least at each place", SumEach: "the sum of each channel",
	Elements: "all of theirs, master by master", Distinct: "all of theirs, each once",
}

// docs/cluster.md says of the answers of several nodes what the table says, for all commands.
func TestDocsSayWhatAnAnswerIsMadeOf(t *testing.T) {
	text, err := os.ReadFile("../../docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## What an answer is made of")
	section, _, _ = strings.Cut(section, "\n## ")
	byCode := map[string]bool{"monitor": true, "scan": true, "randomkey": true, "info": true,
		"client|list": true}
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\| (.*) \| (.*) \| (.*) \|$`).
		FindAllStringSubmatch(section, -1) {
		for _, name := range regexp.MustCompile("`([A-Z -]+)`").FindAllStringSubmatch(m[1], -1) {
			cmd := strings.ToLower(strings.ReplaceAll(name[1], " ", "|"))
			row := Find([]byte(name[1]))
			if command, _, is := strings.Cut(name[1], " "); is {
				var args [][]byte
				for word := range strings.FieldsSeq(name[1]) {
					args = append(args, []byte(word))
				}
				row = Find([]byte(command)).For(args)
			}
			seen[cmd] = true
			asked, answer := "one master", "that master's"
			switch {
			case byCode[cmd]:
				continue
			case row.Nodes == All:
				asked, answer = "all masters and replicas", answersInDocs[row.Join]
			case row.Nodes.Several():
				asked, answer = "all masters", answersInDocs[row.Join]
			}
			ends := row.Nodes != AnyMaster || strings.HasSuffix(m[3], "an error if each refuses")
			if !strings.HasPrefix(m[2], asked) || !strings.HasPrefix(m[3], answer) || !ends {
				t.Errorf("%s is said to ask %s and to answer %s", name[1], m[2], m[3])
			}
		}
	}
	for i := range Rows {
		if row := &Rows[i]; row.Nodes.Several() && !seen[row.Name] {
			t.Errorf("%s asks several nodes, and docs/cluster.md does not say so", row.Name)
		}
	}
}
