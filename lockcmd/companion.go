package lockcmd

import (
	"bytes"
	"sync"
)

// companionInfix stands between a lock's name and the three bytes that bring its companion into the same cluster slot.
const companionInfix = ":lockproxy:"

// companionTag ends the companion of a lock whose own hash tag already decides the slot.
const companionTag = "tag"

// slotAlphabet is what the three bytes are made of: no brace, so that they never make or end a hash tag.
const slotAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"

const slots = 1 << 14 // Redis Cluster's

// CompanionKey names the key that stores who holds the lock key. It begins with the lock's own name, so that an ACL pattern
// which covers every name beginning like the lock's covers it, and it is in the lock's cluster slot whatever bytes the name has.
//
// A name with a hash tag shares it. For any other the whole name is hashed, and still is with a suffix that has no brace;
// CRC16 is linear, so that for every difference between two slots there is a suffix that makes it up.
func CompanionKey(key []byte) string {
	name := make([]byte, 0, len(key)+len(companionInfix)+3)
	name = append(append(name, key...), companionInfix...)
	if hasHashTag(key) {
		return string(append(name, companionTag...))
	}
	want := crc16(0, key)
	have := crc16(crc16(0, name), []byte{0, 0, 0})
	suffix := slotSuffixes()[(want^have)%slots]
	return string(append(name, suffix[:]...))
}

// slotOf is the cluster slot of a key.
func slotOf(key []byte) uint16 {
	if hasHashTag(key) {
		_, key, _ = bytes.Cut(key, []byte("{"))
		key, _, _ = bytes.Cut(key, []byte("}"))
	}
	return crc16(0, key) % slots
}

// slotTag is a hash tag of a slot: three bytes, without the braces.
func slotTag(slot uint16) string {
	tag := slotSuffixes()[slot]
	return string(tag[:])
}

// hasHashTag follows the cluster specification: the text between the first "{" and the first "}" behind it, unless empty.
func hasHashTag(key []byte) bool {
	open := bytes.IndexByte(key, '{')
	return open >= 0 && bytes.IndexByte(key[open+1:], '}') > 0
}

// slotSuffixes maps each difference of slots to three bytes whose CRC16 is that difference.
var slotSuffixes = sync.OnceValue(func() *[slots][3]byte {
	table := new([slots][3]byte)
	for _, a := range []byte(slotAlphabet) {
		for _, b := range []byte(slotAlphabet) {
			for _, c := range []byte(slotAlphabet) {
				suffix := [3]byte{a, b, c}
				table[crc16(0, suffix[:])%slots] = suffix
			}
		}
	}
	return table
})

// crc16 continues the CRC16 of the cluster specification (XMODEM: polynomial 0x1021, no reflection) over data.
func crc16(crc uint16, data []byte) uint16 {
	for _, b := range data {
		crc ^= uint16(b) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return crc
}
