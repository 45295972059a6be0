package testtls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	File string // its certificate, PEM
	Pool *x509.CertPool

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its key.
type Pair struct {
	CertFile, KeyFile string // PEM
	Cert              tls.Certificate
}

// NewAuthority makes a new authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a, der, err := newAuthority()
	check(t, err)
	a.File = filepath.Join(t.TempDir(), "ca.pem")
	check(t, os.WriteFile(a.File, encode("CERTIFICATE", der), 0o600))
	return a
}

func newAuthority() (a *Authority, der []byte, err error) {
	a = &Authority{Pool: x509.NewCertPool()}
	if a.key, err = newKey(); err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "test authority"},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(longest),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err = x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return nil, nil, err
	}
	a.Pool.AddCert(a.cert)
	return a, der, nil
}

// longest is how long certificates are valid, unless they have expired: tests last for less.
const longest = 48 * time.Hour

// Issue makes a certificate for servers and clients alike, for name and 127.0.0.1.
func (a *Authority) Issue(t testing.TB, name string) Pair {
	t.Helper()
	return a.issueFiles(t, name, time.Now().Add(longest), loopback)
}

// IssueName makes one for a name alone, and for no address.
func (a *Authority) IssueName(t testing.TB, name string) Pair {
	t.Helper()
	return a.issueFiles(t, name, time.Now().Add(longest))
}

// IssueExpired makes one that was valid until a minute ago.
func (a *Authority) IssueExpired(t testing.TB, name string) Pair {
	t.Helper()
	return a.issueFiles(t, name, time.Now().Add(-time.Minute), loopback)
}

var loopback = net.IPv4(127, 0, 0, 1)

func (a *Authority) issueFiles(
	t testing.TB, name string, until time.Time, addresses ...net.IP,
) Pair {
	t.Helper()
	certPEM, keyPEM, cert, err := a.issue(name, until, addresses...)
	check(t, err)
	dir := t.TempDir()
	p := Pair{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"),
		Cert: cert}
	check(t, os.WriteFile(p.CertFile, certPEM, 0o600))
	check(t, os.WriteFile(p.KeyFile, keyPEM, 0o600))
	return p
}

func (a *Authority) issue(name string, until time.Time, addresses ...net.IP) (
	certPEM, keyPEM []byte, cert tls.Certificate, err error,
) {
	key, err := newKey()
	if err != nil {
		return nil, nil, cert, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		DNSNames: []string{name}, IPAddresses: addresses,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, nil, cert, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, cert, err
	}
	certPEM, keyPEM = encode("CERTIFICATE", der), encode("EC PRIVATE KEY", keyDER)
	cert, err = tls.X509KeyPair(certPEM, keyPEM)
	return certPEM, keyPEM, cert, err
}

// Shared is an authority, and a certificate of it for 127.0.0.1 and localhost, as PEM and in memory.
type Shared struct {
	CAPEM, CertPEM, KeyPEM []byte
	Pool                   *x509.CertPool
	Cert                   tls.Certificate
}

// Common is for tests that are not about certificates: all of a process have the same.
var Common = sync.OnceValue(func() *Shared {
	a, der, err := newAuthority()
	if err != nil {
		panic(err)
	}
	s := &Shared{CAPEM: encode("CERTIFICATE", der), Pool: a.Pool}
	s.CertPEM, s.KeyPEM, s.Cert, err = a.issue("localhost", time.Now().Add(longest), loopback)
	if err != nil {
		panic(err)
	}
	return s
})

// ServerConfig is that of a server with the common certificate. It sends no tickets: tests look
// whether something has come.
func ServerConfig() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{Common().Cert}, SessionTicketsDisabled: true}
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
