package main

import (
	"bytes"
	"crypto/tls"
	"net"
	"os"
	"strings"
	"testing"

	tlssocket "lockproxy/internal/socket"
	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/testwait"
)

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// handshake connects to a server, and returns the name in the certificate that it showed.
func handshake(t *testing.T, serving, client *tls.Config) (name string, resumed bool, err error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ended := make(chan struct{})
	go func() { // ends with its one client, whose deadline bounds it; waited for below
		defer close(ended)
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		nc.SetDeadline(testwait.Deadline())
		conn := tlssocket.Server(nc, serving)
		if conn.Handshake() == nil {
			conn.Write([]byte("x"))
			conn.Close()
		}
	}()
	defer func() { <-ended }()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(testwait.Deadline())
	conn := tls.Client(nc, client)
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return "", false, err
	}
	state := conn.ConnectionState()
	return state.PeerCertificates[0].Subject.CommonName, state.DidResume, nil
}

// New files are used for new connections, bad ones not at all, and an earlier TLS session lets no
// one in.
func TestCertificatesAreReadAgain(t *testing.T) {
	ca := testtls.NewAuthority(t)
	clients, newClients := testtls.NewAuthority(t), testtls.NewAuthority(t)
	first, second := ca.Issue(t, "first"), ca.Issue(t, "second")
	clientCA := clients.File + ".used"
	copyFile(t, clientCA, clients.File)
	opts, _, err := parseOptions(strings.Fields("--tls-cert "+first.CertFile+" --tls-key "+
		first.KeyFile+" --tls-client-ca "+clientCA), &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	certs, err := loadCertificates(opts)
	if err != nil {
		t.Fatal(err)
	}
	serving := certs.serving()
	as := func(a *testtls.Authority) *tls.Config {
		return &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1",
			Certificates:       []tls.Certificate{a.Issue(t, "client").Cert},
			ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	}
	old, current := as(clients), as(newClients)
	shows := func(step string, client *tls.Config, want string, resumed bool) {
		t.Helper()
		name, didResume, err := handshake(t, serving, client)
		if name != want || didResume != resumed || (err == nil) != (want != "") {
			t.Errorf("%s: shows %q, resumed %v, %v; want %q, %v", step, name, didResume, err, want,
				resumed)
		}
	}
	shows("first", old, "first", false)
	shows("again", old, "first", true)
	shows("another authority", current, "", false)

	// A key that belongs to another certificate.
	copyFile(t, first.CertFile, second.CertFile)
	if err := certs.load(opts); err == nil ||
		!strings.Contains(err.Error(), "--tls-cert "+first.CertFile) {
		t.Errorf("a key of another certificate: %v", err)
	}
	shows("bad files", as(clients), "first", false)

	copyFile(t, first.KeyFile, second.KeyFile)
	os.WriteFile(clientCA, []byte("no PEM"), 0o600)
	if err := certs.load(opts); err == nil ||
		!strings.Contains(err.Error(),
			"--tls-client-ca "+clientCA+": the file holds no certificate") {
		t.Errorf("no authority: %v", err)
	}
	shows("some bad files", as(clients), "first", false)

	copyFile(t, clientCA, newClients.File)
	if err := certs.load(opts); err != nil {
		t.Error(err)
	}
	shows("a client of before, with its session", old, "", false)
	shows("a client of the new authority", current, "second", false)
}

// The upstream's files are read again together with them.
func TestUpstreamCertificatesAreReadAgain(t *testing.T) {
	ca := testtls.NewAuthority(t)
	pair, other := ca.Issue(t, "first"), ca.Issue(t, "second")
	opts, _, err := parseOptions(strings.Fields("--upstream rediss://h --upstream-tls-ca "+ca.File+
		" --upstream-tls-cert "+pair.CertFile+" --upstream-tls-key "+pair.KeyFile+
		" --upstream-tls-server-name redis.test"), &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	certs, err := loadCertificates(opts)
	if err != nil {
		t.Fatal(err)
	}
	before := opts.upstream.TLS()
	if before.ServerName != "redis.test" || before.RootCAs == nil ||
		!bytes.Equal(before.Certificates[0].Certificate[0], pair.Cert.Certificate[0]) {
		t.Errorf("%+v", before)
	}
	copyFile(t, pair.CertFile, other.CertFile)
	if err := certs.load(opts); err == nil || opts.upstream.TLS() != before {
		t.Errorf("bad files: %v", err)
	}
	copyFile(t, pair.KeyFile, other.KeyFile)
	if err := certs.load(opts); err != nil {
		t.Error(err)
	}
	if after := opts.upstream.TLS(); after.ServerName != "redis.test" ||
		!bytes.Equal(after.Certificates[0].Certificate[0], other.Cert.Certificate[0]) {
		t.Errorf("%+v", after)
	}
	if certs.serving() != nil || !certs.used() {
		t.Error("TLS towards clients")
	}
}
