package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// maxWords is how long a sentence may be.
const maxWords = 30

// ownTerms are terms of ours that users need not know. Only pages that define them use them.
var (
	ownTerms   = regexp.MustCompile(`(?i)\b(home|lane|spare)s?\b`)
	definesOwn = regexp.MustCompile(`^docs/(architecture|compatibility)\.md$`)
)

// leftAsTheyAre are sentences, by their pages and how they begin, that break a rule on purpose.
var leftAsTheyAre = []string{}

// unchecked are forms of the forge.
var unchecked = regexp.MustCompile(`^\.github/`)

var (
	comments    = regexp.MustCompile(`(?s)<!--.*?-->`)
	inlineCode  = regexp.MustCompile("``.+?``|`[^`]*`")
	linkTarget  = regexp.MustCompile(`\]\([^)\s]+\)`)
	notProse    = regexp.MustCompile(`^(\||#|!\[|    |\d+\. https?:)`)
	listItem    = regexp.MustCompile(`^ *(?:[-*]|\d+\.) +`)
	sentenceEnd = regexp.MustCompile(`[.?!][)"*_]*\s+`)
	clause      = regexp.MustCompile(`^(What|That|Which|Whatever|Whoever|Whichever)\b`)
	word        = regexp.MustCompile(`[\p{L}\p{N}]`)
)

// sentences are those of a page's prose: without code, tables, headings and pictures. The
// text behind a list's colon is a sentence of its own.
func sentences(page string) (all []string) {
	page = fenced.ReplaceAllString(comments.ReplaceAllString(page, ""), "\n")
	var paragraphs []string
	open := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.TrimSpace(line) == "", notProse.MatchString(line) && !open,
			strings.HasPrefix(line, "|"):
			open = false
			continue
		case !open || listItem.MatchString(line):
			paragraphs = append(paragraphs, listItem.ReplaceAllString(line, ""))
		default:
			paragraphs[len(paragraphs)-1] += " " + strings.TrimSpace(line)
		}
		open = true
	}
	for _, p := range paragraphs {
		p = inlineCode.ReplaceAllString(linkTarget.ReplaceAllString(p, ""), "code")
		for p != "" {
			end := len(p)
			if at := sentenceEnd.FindStringIndex(p); at != nil {
				end = at[1]
			}
			if s := strings.Trim(p[:end], " []*"); s != "" {
				all = append(all, s)
			}
			p = p[end:]
		}
	}
	return all
}

// faults are the rules that a sentence of a page breaks.
func faults(page, sentence string) (found []string) {
	n := 0
	for _, w := range strings.Fields(sentence) {
		if word.MatchString(w) {
			n++
		}
	}
	if n > maxWords {
		found = append(found, fmt.Sprintf("has %d words: want at most %d", n, maxWords))
	}
	if clause.MatchString(sentence) && !strings.HasSuffix(sentence, "?") {
		found = append(found, "begins with a clause or a pronoun: want a noun as its subject")
	}
	if term := ownTerms.FindString(sentence); term != "" && !definesOwn.MatchString(page) {
		found = append(found, "has the term "+term+", which is not for users")
	}
	return found
}

// Prose is written so that it can be read once.
func TestProse(t *testing.T) {
	left := map[string]bool{}
	for _, begin := range leftAsTheyAre {
		left[begin] = false
	}
	checked := 0
	for page, text := range everyPage(t) {
		if unchecked.MatchString(page) {
			continue
		}
	sentences:
		for _, sentence := range sentences(text) {
			checked++
			for _, fault := range faults(page, sentence) {
				for begin := range left {
					if strings.HasPrefix(page+": "+sentence, begin) {
						left[begin] = true
						continue sentences
					}
				}
				t.Errorf("%s: a sentence %s: %s", page, fault, sentence)
			}
		}
	}
	for begin, used := range left {
		if !used {
			t.Errorf("leftAsTheyAre: no fault begins with %q", begin)
		}
	}
	if checked < 300 {
		t.Errorf("only %d sentences", checked)
	}
}

// The rules see what they are about, and nothing else.
func TestProseRules(t *testing.T) {
	const page = "What waits, waits long.\n\n- That is short. It is [a\n  link](x#y).\n\n```\nWhat code\n" +
		"```\n| What a table |\n\nWhat now? Each lane is ours.\n"
	var found []string
	for _, s := range sentences(page + strings.Repeat("long ", maxWords+1) + "end.\n") {
		for range faults("docs/x.md", s) {
			found = append(found, strings.Fields(s)[0])
		}
	}
	if got := strings.Join(found, " "); got != "What That Each long" {
		t.Errorf("faults in %q", got)
	}
}
