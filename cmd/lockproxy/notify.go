package main

import (
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/hashicorp/go-hclog"
)

// What systemd is told of this process, if it has started it with Type=notify.
const (
	stateReady    = daemon.SdNotifyReady // clients can connect
	stateStopping = daemon.SdNotifyStopping
)

// notify tells systemd; without one that wants to know it does nothing.
func notify(state string, log hclog.Logger) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("cannot tell systemd", "state", state, "error", err)
	}
}
