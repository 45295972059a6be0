package cluster

// The settings of a client's connection hold for those to all nodes: open ones are changed at once,
// later ones begin with them.

import "slices"

// settings is what the connections to further nodes begin with.
type settings struct {
	proto    int                         // of the replies
	reset    bool                        // RESET undoes what Dial's connections begin with
	tracking bool                        // CLIENT TRACKING is on
	values   [len(settingNames)][]string // the requests; nil if not set
}

// settingNames are the names of values, in the order in which they are sent.
var settingNames = [...]string{
	"auth", "hello", "setname", "lib-name", "lib-ver", "no-evict", "no-touch", "tracking",
}

// commands are the requests that set s on a connection.
func (s *settings) commands() (cmds [][]string) {
	if s.reset {
		cmds = append(cmds, []string{"RESET"})
	}
	cmds = append(cmds, s.values[:]...)
	return slices.DeleteFunc(cmds, func(cmd []string) bool { return cmd == nil })
}

// set changes a setting for the connections that are opened from now on.
func (s *settings) set(name string, args ...[]byte) {
	cmd := make([]string, len(args))
	for i, arg := range args {
		cmd[i] = string(arg)
	}
	s.values[slices.Index(settingNames[:], name)] = cmd
}

// revert undoes a change from before to after, but for settings that were changed again.
func (s *settings) revert(before, after settings) {
	for i, cmd := range after.values {
		if !slices.Equal(cmd, before.values[i]) && slices.Equal(cmd, s.values[i]) {
			s.values[i] = before.values[i]
		}
	}
}
