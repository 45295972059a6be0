package upstream

import "lockproxy/internal/names"

// Identity is what commands run as: it decides which connections can serve them.
type Identity = names.Identity

// Labels are what a client says of itself, for people who look at the upstream's list of clients.
type Labels struct{ Name, LibName, LibVer string }

// Setup is what a new connection must be told to be like a client's.
type Setup struct {
	Identity
	Labels
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
