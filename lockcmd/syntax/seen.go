package syntax

import (
	"cmp"
	"strings"
	"time"

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

// Info are the arguments of LOCKINFO after the key.
type Info struct {
	What  string // HOLDERS, WAITERS or CHANGED; "" for the lock
	Token int64  // that the client knows of the holder
	Waits bool
	Wait  time.Duration // 0 is forever
}

// ParseInfo reads "[HOLDERS | WAITERS | CHANGED token [WAIT seconds]]".
func ParseInfo(args [][]byte) (o Info, err error) {
	if len(args) == 0 {
		return o, nil
	}
	o.What = strings.ToUpper(string(args[0]))
	known := o.What == "HOLDERS" || o.What == "WAITERS"
	switch rest := args[1:]; {
	case known && len(rest) == 0:
		return o, nil
	case known:
		return o, wrongNumber("lockinfo")
	case o.What != "CHANGED":
		return o, Unexpected(args[0], "HOLDERS, WAITERS or CHANGED token")
	case len(rest) == 0:
		return o, syntaxError(args[0], "CHANGED lacks its value, want CHANGED token")
	}
	token, ok := resp.ParseInt(args[1])
	if !ok {
		return o, NotInteger(args[1], WantToken+", or 0")
	}
	o.Token = token
	for r := (optionReader{known: infoOptions, args: args[2:]}); r.more(); {
		_, value, err := r.next()
		if err != nil {
			return o, err
		}
		if o.Wait, err = parseWait(value); err != nil {
			return o, err
		}
		o.Waits = true
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
