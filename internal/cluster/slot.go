package cluster

import "bytes"

// Slots is how many slots a Redis Cluster has.
const Slots = 16384

// Slot is the slot of a key: of what stands between its first "{" and the first "}" behind that, if there is anything, else
// of all of it.
func Slot(key []byte) int {
	if open := bytes.IndexByte(key, '{'); open >= 0 {
		if n := bytes.IndexByte(key[open+1:], '}'); n > 0 {
			key = key[open+1 : open+1+n]
		}
	}
	return int(crc16(key)) % Slots
}

// crcTable is CRC-16/XMODEM's: polynomial 0x1021.
var crcTable = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		t[i] = crc
	}
	return t
}()

func crc16(b []byte) (crc uint16) {
	for _, c := range b {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^c]
	}
	return crc
}
