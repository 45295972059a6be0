package main

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/hashicorp/go-hclog"
)

// The states of this process that systemd wants to know, if it has started it with Type=notify.
const (
	stateReady    = daemon.SdNotifyReady // clients can connect
	stateStopping = daemon.SdNotifyStopping
	stateAlive    = daemon.SdNotifyWatchdog // it has not hung
)

// notify tells systemd a state, if it wants to know.
func notify(state string, log hclog.Logger) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("cannot notify systemd", "state", state, "error", err)
	}
}

// watchdog tells systemd that the process is alive as often as it wants to know (WatchdogSec), until
// ctx ends. alive says so, or why not; then systemd is told nothing, and ends the process.
func watchdog(ctx context.Context, alive func(context.Context) error, log hclog.Logger) {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("cannot read systemd's watchdog interval: the watchdog is off",
			"error", err)
	}
	if within <= 0 {
		return
	}
	pause := time.NewTicker(within / 3)
	defer pause.Stop()
	for {
		once, cancel := context.WithTimeout(ctx, within/3)
		err := alive(once)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			notify(stateAlive, log)
		default:
			log.Error("this process hangs: systemd will end it", "within", within.String(),
				"error", err)
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}
