package upstream

// Errors say what keeps an upstream from serving, in words for the operator who has named it.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/resp"
)

// Diagnose connects as a new client would, and asks the upstream what it is. The error says what
// keeps it from serving, and what to do about that. info is its answer to INFO; nil if it has not
// answered, or if the user may not ask. If the context ends there is no diagnosis: give it time.
func (u *Upstream) Diagnose(ctx context.Context) (info map[string]string, err error) {
	text, err := u.askInfo(ctx)
	if err != nil {
		return nil, u.Explain(ctx, err, "--upstream-tls")
	}
	if text.IsError() {
		if refusal := string(text.Text); strings.HasPrefix(refusal, "DENIED") {
			return nil, &Error{Addr: u.Addr, Err: errors.New(refusal)}
		}
		return nil, nil
	}
	info = ParseInfo(string(text.Text))
	if fault := u.misfit(info); fault != "" {
		return info, fmt.Errorf("%s: %s", u.Addr, fault)
	}
	if fault := keepsNoLocks(info); fault != nil {
		fault.Addr = u.Addr
		return info, fault
	}
	return info, nil
}

// KeepsNoLocks is the error about an upstream that serves requests, but no writes.
type KeepsNoLocks struct {
	Addr  string
	fault string
	// Full says that its memory is full, which can pass; otherwise it is a replica.
	Full bool
}

func (e *KeepsNoLocks) Error() string { return e.Addr + ": " + e.fault }

// askInfo asks by a connection of its own. Half of the time that ctx gives is for this, half for
// finding out why it fails.
func (u *Upstream) askInfo(ctx context.Context) (v resp.Value, err error) {
	if until, ok := ctx.Deadline(); ok {
		half, cancel := context.WithTimeout(ctx, time.Until(until)/2)
		defer cancel()
		ctx = half
	}
	conn, err := u.Dial(ctx, Setup{Identity: u.Initial})
	if err != nil {
		return v, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	replies, err := roundTrip(conn, []string{"INFO", "everything"})
	if len(replies) > 0 { // what Redis says before it closes
		return resp.ParseValue(replies[0].raw)
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return v, &Error{Addr: u.Addr, Err: err}
}

// ParseInfo reads the lines of an answer to INFO.
func ParseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// Mode is "standalone", "sentinel" or "cluster", in an answer to INFO. Valkey has another name for
// it.
func Mode(info map[string]string) string {
	if mode := info["redis_mode"]; mode != "" {
		return mode
	}
	return info["server_mode"]
}

// misfit says why a server that answers is not what the URL says, or not yet; "" if it is.
func (u *Upstream) misfit(info map[string]string) string {
	switch mode := Mode(info); {
	case mode == "sentinel":
		return "it is a Sentinel: name the group of its master by redis+sentinel://" + u.Addr +
			"/GROUP"
	case u.cluster != nil && mode == "standalone":
		return "it is not a cluster: name it by redis://"
	case u.cluster == nil && mode == "cluster":
		return "it is a node of a cluster, and answers MOVED for most keys: name the cluster by " +
			"redis+cluster://" + u.Addr
	case u.cluster == nil && info["loading"] == "1":
		return "it is loading its data: requests are answered LOADING until that is done"
	}
	return ""
}

// keepsNoLocks says why a server takes no writes; nil if it does.
func keepsNoLocks(info map[string]string) *KeepsNoLocks {
	switch {
	case info["role"] == "slave":
		return &KeepsNoLocks{fault: fmt.Sprintf("it is a replica of %s:%s, which can't be written "+
			"to: name the master in --upstream, or its Sentinels", info["master_host"],
			info["master_port"])}
	case isFull(info):
		return &KeepsNoLocks{Full: true, fault: fmt.Sprintf("its memory is full (%s of maxmemory "+
			"%s, %s): LOCK is answered OOM; raise maxmemory, or delete keys",
			info["used_memory_human"], info["maxmemory_human"], info["maxmemory_policy"])}
	}
	return nil
}

// isFull reports whether a server refuses writes for want of memory.
func isFull(info map[string]string) bool {
	used, err := strconv.ParseInt(info["used_memory"], 10, 64)
	limit, err2 := strconv.ParseInt(info["maxmemory"], 10, 64)
	return err == nil && err2 == nil && limit > 0 && used > limit &&
		info["maxmemory_policy"] == "noeviction"
}

// Explain adds advice to a failure to connect, as far as the cause can be found out. The names of
// the flags about TLS begin with tlsFlags.
func (u *Upstream) Explain(ctx context.Context, err error, tlsFlags string) error {
	var refused *Refused
	if errors.As(err, &refused) {
		return err // in the server's own words
	}
	addr, advice := u.Addr, ""
	var known *Error
	if errors.As(err, &known) {
		addr = known.Addr
	}
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &authority):
		advice = "the authority that has signed its certificate is unknown on this machine: " +
			"name the file of that one by " + tlsFlags + "-ca"
	case errors.As(err, &name):
		advice = "its certificate is for another name: give that by " + tlsFlags + "-server-name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		advice = "its certificate is not valid today: renew it, or set this machine's clock"
	case errors.Is(err, errAfterHandshake) && len(u.TLS().Certificates) > 0:
		advice = "it may not accept the certificate in " + tlsFlags + "-cert: its authority must " +
			"be one that the upstream knows, and it must be valid today"
	case errors.Is(err, errAfterHandshake):
		advice = "it may let in only clients with a certificate: name one by " + tlsFlags +
			"-cert and " + tlsFlags + "-key"
	case u.TLS() != nil:
		if said := u.greet(ctx, addr); said != "" {
			advice = "it does not speak TLS: name it by redis://, not rediss://"
		}
	case u.speaksTLS(ctx, addr):
		advice = "it speaks TLS: name it by rediss://, not redis://"
	default:
		if said := u.greet(ctx, addr); strings.HasPrefix(said, "-DENIED") {
			return &Error{Addr: addr, Err: errors.New(said[1:])}
		}
	}
	if advice == "" {
		return err
	}
	return fmt.Errorf("%s (%w)", advice, err)
}

// isAlert reports whether err is what the other side of a TLS connection has said before it ended
// it.
func isAlert(err error) bool {
	var ended *net.OpError
	return errors.As(err, &ended) && ended.Op == "remote error"
}

// probing opens a plain connection for a look, and has use look at it until ctx ends.
func (u *Upstream) probing(ctx context.Context, addr string, use func(net.Conn)) {
	if u.Network == "tcp" {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return // a group of servers, of which none is known
		}
	}
	raw, err := dialer.DialContext(ctx, u.Network, addr)
	if err != nil {
		return
	}
	defer raw.Close()
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	use(raw)
}

// greet is the first line that a server says to a client without TLS; "" if it is no Redis.
func (u *Upstream) greet(ctx context.Context, addr string) (line string) {
	u.probing(ctx, addr, func(raw net.Conn) {
		raw.Write(resp.AppendCommand(nil, probe)) // one that refuses clients says so without
		text, head, err := resp.ReadReply(raw, maxSetupReply)
		if err == nil && (head.Type == '+' || head.Type == '-') {
			line = string(head.Type) + reply{head, text}.said()
		}
	})
	return line
}

// speaksTLS reports whether a server answers a TLS handshake, be it with a refusal.
func (u *Upstream) speaksTLS(ctx context.Context, addr string) (speaks bool) {
	u.probing(ctx, addr, func(raw net.Conn) {
		// Nothing is sent on this connection, so it does not matter whose it is.
		conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
		err := conn.HandshakeContext(ctx)
		speaks = err == nil || isAlert(err)
	})
	return speaks
}
