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
	for r := (optionReader{known: topOptions, args: args}); r.more(); {
		word, value, err := r.next()
		if err != nil {
			return o, err
		}
		switch word {
		case "SHAPES":
			o.Shapes = true
		case "BY":
			o.By = strings.ToLower(string(value))
			if o.By != "wait" && o.By != "hold" && o.By != "count" {
				return o, Unexpected(value, topOptions[0].String())
			}
		case "COUNT":
			if o.Count, err = parseCount(value); err != nil {
				return o, err
			}
		}
	}
	o.By, o.Count = cmp.Or(o.By, "wait"), cmp.Or(o.Count, DefaultCount)
	return o, nil
}

// Log are the arguments of LOCKLOG.
type Log struct {
	Key   string
	One   bool // of Key alone
	Count int
}

// ParseLog reads "[key] [COUNT n]". A key may be called COUNT.
func ParseLog(args [][]byte) (o Log, err error) {
	r := optionReader{known: logOptions, args: args}
	if len(args)%2 == 1 || r.more() && !strings.EqualFold(string(args[0]), "COUNT") {
		o.One, o.Key, r.args = true, string(args[0]), args[1:]
	}
	o.Count = DefaultCount
	for r.more() {
		_, value, err := r.next()
		if err == nil {
			o.Count, err = parseCount(value)
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

func parseCount(arg []byte) (int, error) {
	n, ok := resp.ParseInt(arg)
	if !ok || n < 1 {
		return 0, NotInteger(arg, wantPositive)
	}
	return int(min(n, MaxCount)), nil
}
