package syntax

import (
	"cmp"
	"strings"

	"lockproxy/internal/resp"
)

const (
	// MaxCount bounds COUNT of LOCKTOP and LOCKLOG.
	MaxCount = 10000
	// DefaultCount is the default of COUNT.
	DefaultCount = 10
)

// Top are the arguments of LOCKTOP.
type Top struct {
	By     string // wait, hold or count
	Count  int
	Shapes bool
}

// ParseTop reads "[BY wait|hold|count] [COUNT n] [SHAPES]"; each option once, in any order.
func ParseTop(args [][]byte) (o Top, err error) {
	for ; len(args) > 0; args = args[1:] {
		switch option := strings.ToUpper(string(args[0])); {
		case option == "SHAPES" && !o.Shapes:
			o.Shapes = true
		case option == "BY" && o.By == "" && len(args) > 1:
			o.By = strings.ToLower(string(args[1]))
			if o.By != "wait" && o.By != "hold" && o.By != "count" {
				return o, Unexpected(args[1], wantTop)
			}
			args = args[1:]
		case option == "COUNT" && o.Count == 0 && len(args) > 1:
			if o.Count, err = ParseCount(args[1]); err != nil {
				return o, err
			}
			args = args[1:]
		default:
			return o, Unexpected(args[0], wantTop)
		}
	}
	o.By, o.Count = cmp.Or(o.By, "wait"), cmp.Or(o.Count, DefaultCount)
	return o, nil
}

func ParseCount(arg []byte) (int, error) {
	n, ok := resp.ParseInt(arg)
	if !ok || n < 1 {
		return 0, NotInteger(arg, wantPositive)
	}
	return int(min(n, MaxCount)), nil
}
