package foreign

import "strings"

// known are the scripts by which lock libraries take locks, by their SHA-1. Most ask by it first:
// the text of a script that Redis knows already is never sent. Releases and extensions need not
// be known: they name the holder's value.
var known = func() map[string]Shape {
	shapes := map[string]Shape{}
	for does, list := range map[Does]string{
		Takes: `
			a90bf4be8a6e440e3cc24540eb2f9ff1e16fbcc3 redlock-rb 0.2.0
			ceb2b2062e40c51a2b3963fd078bc71f11bdc65c redlock-rb 1.2.2
			e5a322e2634ef59a516e8ea150cb085afafee684 node-redlock 4.1
			96da70f7716f27d278a5218544df37fd8b0a5e4c node-redlock 5
			80a1b5f2cfccec3b7119ba7721d2127682b691a7 bsm/redislock 0.9
			b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79 redsync 4, extends or takes
			3875d208d9e377969d2022550302cc83ad17b584 rueidislock, PXAT
			fa3d1aaa7e4145457755016a3d5daf72fa7a11bf rueidislock, PX
			8426c8df41c64d8177dce3ecbbe9146ef3759cd2 Spring Integration 5
			175897a4e379e99e79a54937be09226f76cdcfe5 Spring Integration 6`,
		TakesHash: `
			dad0f8d619e548e04f21fb48d50be5034df3adae Redisson 3.5
			149c5a8bf18676fd99e9e6e24923bd64d9b62f94 Redisson 3.18`,
	} {
		for line := range strings.Lines(list) {
			if fields := strings.Fields(line); len(fields) > 0 {
				shapes[fields[0]] = Shape{Does: does}
			}
		}
	}
	return shapes
}()
