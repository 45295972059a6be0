package main

import (
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/hashicorp/go-hclog"

	"lockproxy/proxy"
)

// reloader does SIGHUP's work: it reads flags, environment and configuration file again, and the
// TLS files.
type reloader struct {
	args    []string // the command line
	current *options // what is in use
	certs   *certificates
	server  *proxy.Server
	log     hclog.Logger
}

// reload takes over what can change while running, or with an error nothing at all.
func (r *reloader) reload() {
	wanted, err := r.read()
	var next options
	if err == nil {
		next = r.current.with(wanted)
		err = r.certs.load(&next)
	}
	if err != nil {
		r.log.Error("SIGHUP: cannot use the new settings; those read before stay in use until "+
			"the next SIGHUP", "error", err)
		return
	}
	changed, waiting := difference(r.current, &next), difference(&next, wanted)
	*r.current = next
	r.log.SetLevel(hclog.LevelFromString(next.LogLevel))
	r.server.SetMaxClients(next.MaxClients)
	r.server.Locks().SetSlowWait(next.SlowWait)
	if len(waiting) > 0 {
		r.log.Warn("SIGHUP: some settings that have changed take effect only with a restart",
			"settings", strings.Join(waiting, " "))
	}
	if len(changed) > 0 {
		r.log.Info("SIGHUP: settings read again and in use", "changed", strings.Join(changed, " "))
	}
	switch {
	case r.certs.used():
		r.log.Info("SIGHUP: TLS files read again; new connections use them")
	case next.Config == "":
		r.log.Info("SIGHUP: there is no --config file, and there are no TLS files to read again")
	case len(changed)+len(waiting) == 0:
		r.log.Info("SIGHUP: settings read again; nothing has changed", "config", next.Config)
	}
}

func (r *reloader) read() (*options, error) {
	cmd, err := parse(r.args, io.Discard)
	if err != nil {
		return nil, err
	}
	return &cmd.(*serveCommand).options, nil
}

// with returns the settings o with those of wanted that take effect while running. TLS files are
// among them, but TLS is not switched on or off.
func (o *options) with(wanted *options) options {
	next := *o
	next.LogLevel, next.MaxClients = wanted.LogLevel, wanted.MaxClients
	next.SlowWait = wanted.SlowWait
	next.ShutdownTimeout, next.ShutdownDelay = wanted.ShutdownTimeout, wanted.ShutdownDelay
	if (o.TLSCert == "") == (wanted.TLSCert == "") {
		next.TLSCert, next.TLSKey = wanted.TLSCert, wanted.TLSKey
		next.TLSClientCA = wanted.TLSClientCA
	}
	if o.Upstream == wanted.Upstream {
		next.UpstreamCert, next.UpstreamKey = wanted.UpstreamCert, wanted.UpstreamKey
		next.UpstreamCA = wanted.UpstreamCA
		next.UpstreamServerName = wanted.UpstreamServerName
	}
	return next
}

// difference names the settings in which two configurations differ.
func difference(a, b *options) (names []string) {
	others := valuesOf(b)
	for name, value := range valuesOf(a) {
		if !reflect.DeepEqual(value, others[name]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// valuesOf are the settings by the names of their flags.
func valuesOf(o *options) map[string]any {
	values := map[string]any{}
	for _, flag := range kong.Must(o, kong.Name("lockproxy")).Model.Flags {
		values[flag.Name] = flag.Target.Interface()
	}
	delete(values, "help")
	return values
}
