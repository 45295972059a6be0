package search

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/names"
)

// Anybody who may use the channels can read and write messages there. So a message is sealed with a
// key that follows from the login of the client whose wait it is about: nobody reads or writes its
// contents who could not log in as that user. Questions name owners by their hashes.

const (
	// maxLogins bounds the logins that are remembered. The least recently used one is forgotten.
	maxLogins = 64
	// maxOfUser bounds those of one user: where a user has no password, each one lets a client in.
	maxOfUser = 8
	// deriveAgain is how long after the key of a login another of the same user is derived. It takes
	// a processor some hundredths of a second.
	deriveAgain = time.Second
	// stretch makes it as costly to guess a password by a message as by asking Redis.
	stretch = 100_000
)

// login is a user that waits here, or has waited.
type login struct {
	as      names.Identity // in database 0
	seal    func() seal    // computed once
	derived atomic.Bool    // seal takes no time
}

func newLogin(as names.Identity) *login {
	one := &login{as: as}
	one.seal = sync.OnceValue(func() seal {
		defer one.derived.Store(true)
		return newSeal(as)
	})
	one.derived.Store(as.Password == "")
	return one
}

// seal is the key of a login. id tells it from others.
type seal struct {
	id string
	cipher.AEAD
}

func newSeal(as names.Identity) seal {
	rounds := stretch
	if as.Password == "" { // there is nothing to guess
		rounds = 1
	}
	key, err := pbkdf2.Key(sha256.New, as.Password, []byte("lockproxy "+as.User), rounds, 32)
	if err != nil {
		panic(err) // it cannot fail with these arguments
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return seal{hash("seal", string(key)), aead}
}

// hash names a thing of some kind without telling its name.
func hash(kind, name string) string {
	sum := sha256.Sum256([]byte("lockproxy " + kind + "\x00" + name))
	return base64.RawStdEncoding.EncodeToString(sum[:16])
}

// logins are those whose messages this proxy reads.
type logins struct {
	// inUse is an identity with the password that is in use, where it is the proxy's own. nil changes
	// none.
	inUse func(names.Identity) names.Identity
	// after runs a job in the background.
	after func(time.Duration, func(context.Context)) (cancel func())

	mu       sync.Mutex
	list     []*login        // guarded by mu; the last used first
	deriving map[string]bool // guarded by mu; users whose key is being derived, or was lately
}

// loginOf is the login of an identity.
func (l *logins) loginOf(as names.Identity) names.Identity {
	as = names.Identity{User: cmp.Or(as.User, "default"), Password: as.Password,
		LoggedIn: as.LoggedIn}
	if l.inUse != nil {
		as = l.inUse(as)
	}
	return as
}

// of returns the login of an identity, and remembers it.
func (l *logins) of(as names.Identity) *login {
	l.mu.Lock()
	defer l.mu.Unlock()
	as = l.loginOf(as)
	l.renewLocked()
	i := slices.IndexFunc(l.list, func(one *login) bool { return one.as == as })
	if i < 0 {
		l.makeRoomLocked(as.User)
		i = len(l.list)
		l.list = append(l.list, newLogin(as))
	}
	one := l.list[i]
	copy(l.list[1:i+1], l.list[:i])
	l.list[0] = one
	l.deriveLocked(as.User)
	return one
}

// makeRoomLocked forgets a login of a user who has as many as one may have, or the last one of all
// if there are too many. mu is held.
func (l *logins) makeRoomLocked(user string) {
	last, of := len(l.list)-1, 0
	for i, one := range l.list {
		if one.as.User == user {
			if of++; of == maxOfUser {
				last = i
			}
		}
	}
	if of >= maxOfUser || len(l.list) >= maxLogins {
		l.list = slices.Delete(l.list, last, last+1)
	}
}

// renewLocked has the proxy's own login follow its password: the key of one that may have been
// removed counts for nothing. mu is held.
func (l *logins) renewLocked() {
	for i, one := range l.list {
		if as := l.loginOf(one.as); as != one.as {
			l.list[i] = newLogin(as)
			l.deriveLocked(as.User)
		}
	}
}

// deriveLocked derives the keys of a user's logins in the background, the last used first, with a
// pause after each: one user takes a processor for a small part of each second, however many
// passwords let a client in as that user. mu is held.
func (l *logins) deriveLocked(user string) {
	i := slices.IndexFunc(l.list, func(one *login) bool {
		return one.as.User == user && !one.derived.Load()
	})
	if i < 0 || l.deriving[user] {
		return
	}
	if l.deriving == nil {
		l.deriving = map[string]bool{}
	}
	l.deriving[user] = true
	one := l.list[i]
	l.after(0, func(context.Context) {
		loopguard.MayWait() // for the processor
		one.seal()
		l.after(deriveAgain, func(context.Context) {
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.deriving, user)
			l.deriveLocked(user)
		})
	})
}

// sealed returns what only those read who know a login, and its seal. about is bound to it.
func (one *login) sealed(plain []byte, about string) (id string, text []byte) {
	loopguard.MayWait() // for the processor, once
	by := one.seal()
	return by.id, by.Seal(nil, nil, plain, []byte(about))
}

// open returns what was sealed by a login that is known here, and that login. It does not wait for
// keys to be derived: messages about releases come by the same connection, behind this one.
func (l *logins) open(id string, text []byte, about string) (plain []byte, as names.Identity) {
	l.mu.Lock()
	l.renewLocked()
	list := slices.Clone(l.list)
	l.mu.Unlock()
	for _, one := range list {
		if !one.derived.Load() {
			continue
		}
		if by := one.seal(); by.id == id {
			if plain, err := by.Open(nil, nil, text, []byte(about)); err == nil {
				return plain, one.as
			}
		}
	}
	return nil, names.Identity{}
}
