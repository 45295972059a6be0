package loglimit

import "strings"

// Add adds those pairs to a line of the log that say something. Text that clients have sent is made
// fit for it.
func Add(line []any, pairs ...any) []any {
	for i := 0; i < len(pairs); i += 2 {
		value := pairs[i+1]
		if text, is := value.(string); is {
			value = strings.ToValidUTF8(text, "?")
		}
		if value != "" && value != int64(0) {
			line = append(line, pairs[i], value)
		}
	}
	return line
}
