package main

import (
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/hashicorp/go-hclog"
)

// The states of this process that systemd wants to know, if it has started it with Type=notify.
const (
	stateReady    = daemon.SdNotifyReady // clients can connect
	stateStopping = daemon.SdNotifyStopping
)

// notify tells systemd a state, if it wants to know.
func notify(state string, log hclog.Logger) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("cannot tell systemd", "state", state, "error", err)
	}
}
