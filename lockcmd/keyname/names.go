package keyname

import (
	"strconv"
	"strings"
	"sync"

	"lockproxy/internal/slot"
)

// recordInfix stands between a lock's name and the three bytes that bring its record into the same
// cluster slot.
const recordInfix = ":lockproxy:"

// ClaimInfix stands likewise between the name of ONCE's value and the end of its claim's.
const ClaimInfix = ":once:"

// recordTag ends the record's name if a hash tag already decides the lock's slot.
const recordTag = "tag"

// slotAlphabet has the values of the three bytes: no brace, so that they never make or end a hash
// tag.
const slotAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"

// Record names the record of a lock. It begins with the lock's name, so that an ACL pattern for
// names that begin so covers it. It is in the lock's cluster slot.
//
// If the lock's name has a hash tag, the record's name has the same. Otherwise the whole names are
// hashed. CRC16 is linear: for every difference between two slots there is a suffix that removes
// it.
func Record(key []byte) string { return keyNextTo(key, recordInfix) }

// RecordPattern is SCAN's pattern for lock records.
const RecordPattern = "*" + recordInfix + "???"

// LockOf returns the lock of a record, by the record's name.
func LockOf(record string) (key string, ok bool) { return keyBefore(record, recordInfix) }

// Fence names the key that FENCE watches for a token of a shared lock, in the lock's slot.
func Fence(key []byte, token int64) string {
	return keyNextTo(key, recordInfix+"fence:"+strconv.FormatInt(token, 10)+":")
}

// Claim names the lock that ONCE takes to make the value of a key.
func Claim(key []byte) string { return keyNextTo(key, ClaimInfix) }

// MadeBy is the key whose value the holder of a lock makes, if the lock is ONCE's claim.
func MadeBy(claim string) (key string, ok bool) { return keyBefore(claim, ClaimInfix) }

// keyBefore is the key for which keyNextTo makes the name.
func keyBefore(name, infix string) (key string, ok bool) {
	i := strings.LastIndex(name, infix)
	if i < 0 {
		return "", false
	}
	return name[:i], keyNextTo([]byte(name[:i]), infix) == name
}

// keyNextTo is a name that begins with a lock's, in the lock's cluster slot.
func keyNextTo(key []byte, infix string) string {
	name := make([]byte, 0, len(key)+len(infix)+3)
	name = append(append(name, key...), infix...)
	if _, tagged := slot.Tag(key); tagged {
		return string(append(name, recordTag...))
	}
	var room [64]byte // with three bytes at the end that change nothing
	unsuffixed := append(append(room[:0], infix...), 0, 0, 0)
	want := slot.CRC16(0, key)
	have := slot.CRC16(want, unsuffixed)
	suffix := slotSuffixes()[(want^have)%slot.Count]
	return string(append(name, suffix[:]...))
}

// SlotOf is the cluster slot of a key.
func SlotOf(key []byte) uint16 { return uint16(slot.Of(key)) }

// SlotTag is a hash tag of a slot: three bytes, without the braces.
func SlotTag(of uint16) string {
	tag := slotSuffixes()[of]
	return string(tag[:])
}

// NotifyChannel begins the names of the channels. notify.lua has it, too.
const NotifyChannel = "lockproxy:wake:"

// SlotChannel is a proxy's channel for the locks in a slot of a cluster.
func SlotChannel(slot uint16, proxy string) string {
	return NotifyChannel + "{" + SlotTag(slot) + "}:" + proxy
}

// slotSuffixes maps each difference of slots to three bytes whose CRC16 is that difference.
var slotSuffixes = sync.OnceValue(func() *[slot.Count][3]byte {
	table := new([slot.Count][3]byte)
	for _, a := range []byte(slotAlphabet) {
		for _, b := range []byte(slotAlphabet) {
			for _, c := range []byte(slotAlphabet) {
				suffix := [3]byte{a, b, c}
				table[slot.CRC16(0, suffix[:])%slot.Count] = suffix
			}
		}
	}
	return table
})
