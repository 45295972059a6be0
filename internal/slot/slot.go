package slot

import "bytes"

// Count is how many slots a Redis Cluster has.
const Count = 16384

// Of returns the slot of a key. If the key has a hash tag, the slot is that of the tag.
func Of(key []byte) int {
	if tag, ok := Tag(key); ok {
		key = tag
	}
	return int(CRC16(0, key)) % Count
}

// Tag returns a key's hash tag: the text between its first "{" and the next "}". ok is false if
// there is none or it is empty.
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

// table[b] is how the byte b changes the sum.
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

// CRC16 extends crc, which is 0 at the start, by data. It is the CRC16 of the cluster specification
// (XMODEM: polynomial 0x1021, no reflection).
func CRC16(crc uint16, data []byte) uint16 {
	for _, b := range data {
		crc = crc<<8 ^ table[byte(crc>>8)^b]
	}
	return crc
}
