package upstream

import "strconv"

// Identity is what commands run as: it decides which connections can serve them.
type Identity struct {
	User     string // "" is the default user
	Password string // never logged
	LoggedIn bool   // AUTH has succeeded, or the upstream's URL brought credentials
	DB       int
	Proto    int // 2 or 3
}

// Labels are what a client says of itself, for people who look at the upstream's list of clients.
type Labels struct{ Name, LibName, LibVer string }

// Setup is what a new connection must be told to be like a client's.
type Setup struct {
	Identity
	Labels
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

// commands are the requests that set a new connection up.
func (s Setup) commands() [][]string { return append(s.Login(), s.Labels.commands()...) }

// commands are those that set the labels of a new connection.
func (l Labels) commands() (cmds [][]string) {
	if l.Name != "" {
		cmds = append(cmds, []string{"CLIENT", "SETNAME", l.Name})
	}
	if l.LibName != "" {
		cmds = append(cmds, []string{"CLIENT", "SETINFO", "LIB-NAME", l.LibName})
	}
	if l.LibVer != "" {
		cmds = append(cmds, []string{"CLIENT", "SETINFO", "LIB-VER", l.LibVer})
	}
	return cmds
}
