package syntax

import (
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/script"
)

// longestExpire are the longest that DONE takes, 31 million years. Redis takes nine times as long, but
// would refuse more only if the token holds the claim.
var longestExpire = map[string]int64{"EX": 1e15, "PX": 1e18}

// ParseDone reads the arguments of DONE after the key. stored are the value and how long it lives, as
// done.lua takes them; nil gives up.
func ParseDone(args [][]byte) (p script.Proof, stored *script.FastArgs, err error) {
	p, err = ParseToken(args[0], WantToken)
	if err != nil || len(args) == 1 {
		return p, nil, err
	}
	stored = &script.FastArgs{string(args[1])}
	if len(args) == 2 {
		return p, stored, nil
	}
	r := optionReader{known: doneOptions, args: args[2:]}
	unit, number, err := r.next()
	if err != nil {
		return p, nil, err
	}
	n, ok := resp.ParseInt(number)
	switch longest := longestExpire[unit]; {
	case !ok:
		return p, nil, NotInteger(number, unit)
	case n < 1 || n > longest:
		return p, nil, invalidExpire(number, unit, longest)
	}
	stored[1], stored[2] = unit, string(number)
	return p, stored, nil
}
