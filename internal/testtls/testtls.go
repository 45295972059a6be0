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
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "test authority"},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(t, err)
	a := &Authority{File: filepath.Join(t.TempDir(), "ca.pem"), Pool: x509.NewCertPool(), key: key}
	a.cert, err = x509.ParseCertificate(der)
	check(t, err)
	a.Pool.AddCert(a.cert)
	write(t, a.File, "CERTIFICATE", der)
	return a
}

// Issue makes a certificate for servers and clients alike, for name and 127.0.0.1.
func (a *Authority) Issue(t testing.TB, name string) Pair {
	t.Helper()
	return a.issue(t, name, time.Now().Add(time.Hour), loopback)
}

// IssueName makes one for a name alone, and for no address.
func (a *Authority) IssueName(t testing.TB, name string) Pair {
	t.Helper()
	return a.issue(t, name, time.Now().Add(time.Hour))
}

// IssueExpired makes one that was valid until a minute ago.
func (a *Authority) IssueExpired(t testing.TB, name string) Pair {
	t.Helper()
	return a.issue(t, name, time.Now().Add(-time.Minute), loopback)
}

var loopback = net.IPv4(127, 0, 0, 1)

func (a *Authority) issue(
	t testing.TB, name string, until time.Time, addresses ...net.IP,
) Pair {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		DNSNames: []string{name}, IPAddresses: addresses,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	check(t, err)
	keyDER, err := x509.MarshalECPrivateKey(key)
	check(t, err)
	dir := t.TempDir()
	p := Pair{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	write(t, p.CertFile, "CERTIFICATE", der)
	write(t, p.KeyFile, "EC PRIVATE KEY", keyDER)
	p.Cert, err = tls.LoadX509KeyPair(p.CertFile, p.KeyFile)
	check(t, err)
	return p
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return key
}

func write(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	check(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
