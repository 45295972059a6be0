package script

import (
	"lockproxy/internal/names"
	"lockproxy/lockcmd/keyname"
)

// LockAll makes a call of all.lua. firstAt is its `first_at`. since is when the request began to
// wait, by the upstream's clock, ms; 0 if it has not. ends is as for Lock.
func (m *Maker) LockAll(rs []Request, mode, firstAt string, how How, since, ends int64) Call {
	r := rs[0]
	c := m.Call(allScript, r.Key, FastArgs{firstAt}, listOf(r),
		m.takeWords(mode, how, since, ends)...)
	for _, r := range rs[1:] {
		c.addLock(r.Key)
	}
	c.Confirm = m.Confirm
	return c
}

// addLock adds another lock to a call.
func (c *Call) addLock(key string) { c.More = append(c.More, key, keyname.Record([]byte(key))) }

// UnlockAll makes a call of unall.lua, which releases several locks of one token. kinds are what
// the waiters of each want.
func (m *Maker) UnlockAll(db int, keys []string, p Proof, kinds string, how How) Call {
	c := m.Call(unallScript, keys[0], NoFastPath, kinds,
		m.releaseWords(names.Lock{DB: db, Key: keys[0]}, p, how, "-")...)
	for _, key := range keys[1:] {
		c.addLock(key)
	}
	return c
}

// EachUnlocked are the answers of unlock.lua in that of unall.lua.
func (c *Call) EachUnlocked(n int, answer Answer, err error) (list []Answer, failed error) {
	if err = answer.Failure(err); err == nil && len(answer.Elems) != n {
		err = Unexpected(unallScript, answer.Value)
	}
	list = make([]Answer, n)
	for i := range list {
		if err == nil {
			list[i].Value = answer.Elems[i]
		}
	}
	return list, err
}
