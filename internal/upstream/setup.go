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
func (s Setup) commands() [][]string { return append(s.Login(), s.Labels.Commands()...) }

// Commands set the labels of a new connection. Their replies do not matter.
func (l Labels) Commands() (cmds [][]string) {
	if l.Name != "" {
		cmds = append(cmds, []string{"CLIENT", "SETNAME", l.Name})
	}
	return append(cmds, l.library(l.LibName, l.LibVer)...)
}

// library are the commands that replace what the client has said of its library.
func (l Labels) library(name, version string) (cmds [][]string) {
	if l.LibName != "" {
		cmds = append(cmds, []string{"CLIENT", "SETINFO", "LIB-NAME", name})
	}
	if l.LibVer != "" {
		cmds = append(cmds, []string{"CLIENT", "SETINFO", "LIB-VER", version})
	}
	return cmds
}
