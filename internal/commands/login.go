package commands

import (
	"bytes"

	"lockproxy/internal/resp"
)

// Login is what AUTH or HELLO asks for.
type Login struct {
	User, Password []byte // nil if it has none
	Proto          int64  // HELLO's version; 0 if it has none
	Name           []byte // for SETNAME; nil if it has none
}

// ParseLogin reads AUTH [user] password, or HELLO [version [AUTH user password] [SETNAME name]]. Of
// a request that Redis will refuse it reads what it can.
func ParseLogin(args [][]byte) (l Login) {
	if Find(args[0]).Effect == Auth {
		switch len(args) {
		case 2:
			l.Password = args[1]
		case 3:
			l.User, l.Password = args[1], args[2]
		}
		return l
	}
	if len(args) > 1 {
		l.Proto, _ = resp.ParseInt(args[1])
	}
	for i := 2; i < len(args); i++ {
		switch option := args[i]; {
		case bytes.EqualFold(option, []byte("auth")) && i+2 < len(args):
			l.User, l.Password = args[i+1], args[i+2]
			i += 2
		case bytes.EqualFold(option, []byte("setname")) && i+1 < len(args):
			i++
			l.Name = args[i]
		}
	}
	return l
}
