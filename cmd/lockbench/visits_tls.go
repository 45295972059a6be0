package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"lockproxy/internal/test/freeport"
)

// certFile and keyFile are of the Redis that is reached with TLS. The certificate is its own
// authority.
func (l *lab) certFile() string { return filepath.Join(l.dir, "redis.crt") }
func (l *lab) keyFile() string  { return filepath.Join(l.dir, "redis.key") }

// makeCertificate writes these.
func (l *lab) makeCertificate() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	about := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	cert, err := x509.CreateCertificate(rand.Reader, &about, &about, &key.PublicKey, key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	return errors.Join(err, writePEM(l.certFile(), "CERTIFICATE", cert),
		writePEM(l.keyFile(), "PRIVATE KEY", secret))
}

func writePEM(file, kind string, content []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600)
}

// tlsArgs are for a Redis that serves TLS on addr as well.
func (l *lab) tlsArgs() (addr string, args []string, err error) {
	if err := l.makeCertificate(); err != nil {
		return "", nil, err
	}
	if addr, err = freeport.Addr(); err != nil {
		return "", nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	return addr, []string{"--tls-port", port, "--tls-cert-file", l.certFile(), "--tls-key-file",
		l.keyFile(), "--tls-auth-clients", "no"}, nil
}

// openTLS starts what reaches Redis with TLS.
func (b *bench) openTLS(redis *server) error {
	proxy, err := b.startLockproxy("rediss://"+b.tlsAddr, "--upstream-tls-ca", b.certFile())
	if err != nil {
		return err
	}
	haproxy, err := b.startHAProxy("", b.tlsAddr+" ssl ca-file "+b.certFile())
	b.byTLS = []*target{{viaDirect, redis}, {viaLockproxy, proxy}, {viaHAProxy, haproxy}}
	return err
}

// dialTLS is dial with TLS.
func dialTLS(addr string) (*rawClient, error) {
	nc, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	nc.SetDeadline(time.Now().Add(maxRun))
	// What it costs to tell whether the certificate can be trusted is not measured.
	secure := tls.Client(nc, &tls.Config{InsecureSkipVerify: true})
	return &rawClient{nc: secure, way: secure, in: bufio.NewReader(secure)}, nil
}
