package syntax

import "strings"

// option is a word that a command takes, and the name of the value behind it, "" if there is none.
type option struct{ word, value string }

func (o option) String() string { return strings.TrimSpace(o.word + " " + o.value) }

// optionSet are the options of a command: each can be given once, in any order.
type optionSet []option

var (
	lockOptions = optionSet{{"SHARED", ""}, {"LIMIT", "n"}, {"WAIT", "seconds"}, {"PLACE", "seconds"},
		{"SESSION", ""}, {"MAX", "seconds"}, {"OWNER", "name"}, {"NOTE", "text"}}
	lockAllOptions = optionSet{{"WAIT", "seconds"}, {"SESSION", ""}, {"OWNER", "name"},
		{"NOTE", "text"}}
	onceOptions = optionSet{{"EARLY", "seconds"}, {"WAIT", "seconds"}, {"SESSION", ""},
		{"MAX", "seconds"}, {"OWNER", "name"}}
	relockOptions = optionSet{{"SHARED", ""}, {"EXCLUSIVE", ""}, {"WAIT", "seconds"}}
	doneOptions   = optionSet{{"EX", "seconds"}, {"PX", "milliseconds"}}
	infoOptions   = optionSet{{"WAIT", "seconds"}}
	scanOptions   = optionSet{{"MATCH", "pattern"}, {"COUNT", "n"},
		{"KIND", "lockproxy|timestamp|other|all"}}
	topOptions = optionSet{{"BY", "wait|hold|count"}, {"COUNT", "n"}, {"SHAPES", ""}}
	logOptions = optionSet{{"COUNT", "n"}}
)

// String lists the options, for an error. NOTE and PLACE are left out: clients compare the text of
// the error, which is older.
func (s optionSet) String() string {
	words := make([]string, 0, len(s))
	for _, o := range s {
		if o.word != "NOTE" && o.word != "PLACE" {
			words = append(words, o.String())
		}
	}
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// index finds an option by its word in capitals; -1 if there is none.
func (s optionSet) index(word string) int {
	for i := range s {
		if s[i].word == word {
			return i
		}
	}
	return -1
}

// optionReader reads the options of a request.
type optionReader struct {
	known optionSet
	args  [][]byte
	given uint // a bit for each of known
}

// more reports whether there are arguments left.
func (r *optionReader) more() bool { return len(r.args) > 0 }

// next reads an option: its word in capitals, and its value.
func (r *optionReader) next() (word string, value []byte, err error) {
	arg := r.args[0]
	word = strings.ToUpper(string(arg))
	i := r.known.index(word)
	switch {
	case i < 0:
		return "", nil, Unexpected(arg, r.known.String())
	case r.has(word):
		return "", nil, syntaxError(arg, word+" is given twice")
	}
	r.given |= 1 << i
	for _, pair := range [][2]string{{"SHARED", "LIMIT"}, {"SHARED", "EXCLUSIVE"}, {"WAIT", "PLACE"}} {
		if r.has(pair[0]) && r.has(pair[1]) {
			return "", nil, syntaxError(arg, pair[0]+" and "+pair[1]+" exclude each other")
		}
	}
	r.args = r.args[1:]
	if r.known[i].value == "" {
		return word, nil, nil
	}
	if !r.more() {
		return "", nil, r.lacksValue(arg)
	}
	value, r.args = r.args[0], r.args[1:]
	return word, value, nil
}

// has reports whether an option has been given.
func (r *optionReader) has(word string) bool {
	i := r.known.index(word)
	return i >= 0 && r.given&(1<<i) != 0
}

// lacksValue is the error for an option without its value, or with an empty one.
func (r *optionReader) lacksValue(arg []byte) UsageError {
	o := r.known[r.known.index(strings.ToUpper(string(arg)))]
	return syntaxError(arg, o.word+" lacks its value, want "+o.String())
}
