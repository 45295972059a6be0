package passthrough

// What a connection is set up as.

// Identity is what a session's commands run as: it decides which connections may serve it.
type Identity struct {
	User     string // "" is the default user
	Password string // never logged
	LoggedIn bool   // AUTH has succeeded, or the upstream's URL brought credentials
	DB       int
	Proto    int // 2 or 3
}

// Labels are what a client says of itself, for people who look at the upstream's list of clients.
type Labels struct{ Name, LibName, LibVer string }

// Setup is what a new connection must be told to be like a session's.
type Setup struct {
	Identity
	Labels
}

// labelCommands are the requests that set the labels of a new connection.
func (s Setup) labelCommands() (cmds [][]string) {
	if s.Name != "" {
		cmds = append(cmds, []string{"CLIENT", "SETNAME", s.Name})
	}
	if s.LibName != "" {
		cmds = append(cmds, []string{"CLIENT", "SETINFO", "LIB-NAME", s.LibName})
	}
	if s.LibVer != "" {
		cmds = append(cmds, []string{"CLIENT", "SETINFO", "LIB-VER", s.LibVer})
	}
	return cmds
}
