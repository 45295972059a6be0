// Package names has the names by which all packages know a lock and a login, and a Filter of keys.
// It imports no other package.
package names

import "strconv"

// Lock names a lock within the upstream.
type Lock struct {
	DB  int
	Key string
}

// Identity is what commands run as: it decides which connections can serve them.
type Identity struct {
	User     string // "" is the default user
	Password string // never logged
	LoggedIn bool   // AUTH has succeeded, or the upstream's URL brought credentials
	DB       int
	Proto    int // 2 or 3; 0 where it does not matter
}

// AnyProto is the identity of commands whose replies no client reads as they come: lock commands
// that run as the same user, in the same database, are alike.
func (id Identity) AnyProto() Identity {
	id.Proto = 0
	return id
}

// Login are the requests that bring a new connection to an identity.
func (id Identity) Login() (cmds [][]string) {
	if id.LoggedIn && id.User != "" {
		cmds = append(cmds, []string{"AUTH", id.User, id.Password})
	} else if id.LoggedIn {
		cmds = append(cmds, []string{"AUTH", id.Password})
	}
	if id.Proto == 3 {
		cmds = append(cmds, []string{"HELLO", "3"})
	}
	if id.DB != 0 {
		cmds = append(cmds, []string{"SELECT", strconv.Itoa(id.DB)})
	}
	return cmds
}
