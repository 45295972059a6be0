package main

import (
	"io"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/alecthomas/kong"
	"github.com/hashicorp/go-hclog"

	"lockproxy/proxy"
)

// reloader does SIGHUP's work: it reads flags, environment and configuration file again, the files
// of secrets, and the TLS files.
type reloader struct {
	args    []string // the command line
	current *options // what is in use
	certs   *certificates
	server  *proxy.Server
	log     hclog.Logger

	mu sync.Mutex // held while settings are read and taken over
}

// renew takes over the passwords for Redis and its Sentinels, which were refused, if others can be
// read by now.
func (r *reloader) renew() {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted, err := r.read()
	switch {
	case err != nil:
		r.log.Warn("the upstream refuses the password, and the settings cannot be read again",
			"error", err)
	case r.current.sameUpstream(wanted) && r.current.upstream.Renew(wanted.upstream):
		r.current.renewed(wanted)
		r.log.Info("the upstream refused the password, and a new one was read: it is in use")
	}
}

// reload takes over what can change while running, or with an error nothing at all.
func (r *reloader) reload() {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted, err := r.read()
	var next options
	if err == nil {
		next = r.current.with(wanted)
		err = r.certs.load(&next)
	}
	if err != nil {
		r.log.Error("SIGHUP: the new settings are wrong; the previous ones stay in use until the "+
			"next SIGHUP", "error", err)
		return
	}
	if next.upstream != nil && next.sameUpstream(wanted) {
		next.upstream.Renew(wanted.upstream)
	}
	changed, waiting := difference(r.current, &next), difference(&next, wanted)
	*r.current = next
	r.log.SetLevel(hclog.LevelFromString(next.LogLevel))
	r.server.SetMaxClients(next.MaxClients)
	r.server.Locks().SetSlowWait(next.SlowWait)
	if len(waiting) > 0 {
		r.log.Warn("SIGHUP: some changed settings take effect only after a restart",
			"settings", strings.Join(waiting, " "))
	}
	if len(changed) > 0 {
		r.log.Info("SIGHUP: the changed settings are in use", "changed", strings.Join(changed, " "))
	}
	r.certs.warn(r.log)
	switch {
	case r.certs.used():
		r.log.Info("SIGHUP: the TLS files were read again; new connections use them")
	case len(changed)+len(waiting) == 0:
		r.log.Info("SIGHUP: the settings were read again; nothing has changed")
	}
}

func (r *reloader) read() (*options, error) {
	cmd, err := parse(r.args, io.Discard)
	if err != nil {
		return nil, err
	}
	return &cmd.(*serveCommand).options, nil
}

// with returns the settings o with those of wanted that take effect while running. TLS files and
// passwords are among them, but TLS is not switched on or off.
func (o *options) with(wanted *options) options {
	next := *o
	next.LogLevel, next.MaxClients = wanted.LogLevel, wanted.MaxClients
	next.SlowWait = wanted.SlowWait
	next.ShutdownTimeout, next.ShutdownDelay = wanted.ShutdownTimeout, wanted.ShutdownDelay
	if (o.TLSCert == "") == (wanted.TLSCert == "") {
		next.TLSCert, next.TLSKey = wanted.TLSCert, wanted.TLSKey
		next.TLSClientCA = wanted.TLSClientCA
	}
	if o.sameUpstream(wanted) {
		next.renewed(wanted)
		next.UpstreamCert, next.UpstreamKey = wanted.UpstreamCert, wanted.UpstreamKey
		next.UpstreamCA = wanted.UpstreamCA
		next.UpstreamServerName = wanted.UpstreamServerName
	}
	return next
}

// sameUpstream reports whether wanted has the same upstream, with other passwords at most.
func (o *options) sameUpstream(wanted *options) bool {
	if o.upstream == nil || wanted.upstream == nil {
		return o.upstream == wanted.upstream
	}
	return o.upstream.Same(wanted.upstream)
}

// renewed takes over the credentials of wanted.
func (o *options) renewed(wanted *options) {
	o.Upstream, o.UpstreamFile = wanted.Upstream, wanted.UpstreamFile
	o.SentinelUser, o.SentinelPassword = wanted.SentinelUser, wanted.SentinelPassword
	o.SentinelPasswordFile = wanted.SentinelPasswordFile
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
