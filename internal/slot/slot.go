// Package slot knows to which slot of a Redis Cluster a key belongs, by the cluster specification's rules. It is pure computation.
package slot

import "bytes"

// Count is how many slots a Redis Cluster has.
const Count = 16384

// Of is the slot of a key, of which its hash tag decides alone if it has one.
func Of(key []byte) int {
	if tag, ok := Tag(key); ok {
		key = tag
	}
	return int(CRC16(0, key)) % Count
}

// Tag is a key's hash tag: what stands between its first "{" and the first "}" behind that, unless that is nothing.
func Tag(key []byte) (tag []byte, ok bool) {
	open := bytes.IndexByte(key, '{')
	if open < 0 {
		return nil, false
	}
	tag = key[open+1:]
	n := bytes.IndexByte(tag, '}')
	if n <= 0 {
		return nil, false
	}
	return tag[:n], true
}

// table is how each byte changes the sum.
var table = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
		t[i] = crc
	}
	return t
}()

// CRC16 continues the CRC16 of the cluster specification (XMODEM: polynomial 0x1021, no reflection) over data; it begins with 0.
func CRC16(crc uint16, data []byte) uint16 {
	for _, b := range data {
		crc = crc<<8 ^ table[byte(crc>>8)^b]
	}
	return crc
}
