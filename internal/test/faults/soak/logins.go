//go:build linux

package soak

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"lockproxy/internal/test/faults/client"
	"lockproxy/internal/test/faults/history"
)

func (b *Bench) acl() string { return filepath.Join(b.dir, "users.acl") }

// makeUsers writes redis's users where it reads them at each start.
func (b *Bench) makeUsers() error {
	lines := []string{"user default on nopass " + everything}
	for _, user := range append([]string{admin}, users[1:]...) {
		lines = append(lines, "user "+user+" on >"+user+" "+everything)
	}
	for i, user := range []string{ofProxies, rotates} {
		b.passwords[i] = &client.Passwords{User: user}
		b.passwords[i].Add(user + "0")
		lines = append(lines, "user "+user+" on >"+user+"0 "+everything)
	}
	return os.WriteFile(b.acl(), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// secret is the file from which a proxy reads its upstream's address and its password.
func (b *Bench) secret(proxy int) string {
	return filepath.Join(b.dir, fmt.Sprint("upstream-", proxy))
}

func (b *Bench) writeSecret(proxy int) error {
	path := b.secret(proxy)
	url := "redis://" + ofProxies + ":" + b.passwords[0].Back(0) + "@" + b.up[proxy].Addr() + "\n"
	if err := os.WriteFile(path+".new", []byte(url), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// rotatePasswords has redis accept new passwords, puts these into use, and removes those before.
func (b *Bench) rotatePasswords(ctx context.Context, f *Fault) {
	for _, p := range b.passwords {
		b.password(f, history.Accept, p.User, b.rotated+1)
	}
	b.rotated++
	for _, p := range b.passwords {
		p.Add(fmt.Sprint(p.User, b.rotated))
	}
	f.Detail = []string{"the proxies are told", "the proxies are not told"}[f.Amount%2]
	for i, p := range b.proxy {
		if err := b.writeSecret(i); err != nil {
			b.alarm("%v", err)
		}
		if f.Amount%2 == 0 && b.starting[i].TryLock() { // otherwise it is about to read it
			p.Reload()
			b.starting[i].Unlock()
		}
	}
	sleep(ctx, f.For/2)
	for _, p := range b.passwords {
		b.password(f, history.Reject, p.User, b.rotated-1)
	}
	sleep(ctx, f.For/2)
}

// recordPasswords records which passwords are right as a round begins.
func (b *Bench) recordPasswords() {
	now := history.Now()
	for _, p := range b.passwords {
		for n := max(0, b.rotated-2); n <= b.rotated; n++ {
			o := history.Op{Kind: history.Accept, Owner: p.User, Value: fmt.Sprint(p.User, n), Call: now,
				Return: now, Outcome: history.OK}
			if b.notes.Add(o); n < b.rotated {
				o.Kind = history.Reject
				b.notes.Add(o)
			}
		}
	}
}

// password has redis accept or reject a user's password of a number, also when it starts again.
func (b *Bench) password(f *Fault, kind history.Kind, user string, number int) {
	password := fmt.Sprint(user, number)
	op := b.notes.Begin(history.Op{Kind: kind, Owner: user, Value: password})
	sign := map[history.Kind]string{history.Accept: ">", history.Reject: "<"}[kind]
	b.must(f, "ACL", "SETUSER", user, sign+password)
	b.must(f, "ACL", "SAVE")
	b.notes.End(op, func(op *history.Op) { op.Outcome = history.OK })
}
