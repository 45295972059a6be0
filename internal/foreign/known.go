package foreign

import (
	"crypto/sha1"
	"encoding/hex"
	"strings"
	"sync/atomic"
)

// script is what a script does to the lock at its keys. Each position is that of an argument behind
// the keys, from 1; 0 is none.
type script struct {
	Action
	done    done
	value   int // the position of the holder's value
	ttl     int // the position of the TTL, or of a time since 1970
	seconds bool
}

// unknown is any script that is not listed: most scripts of locks compare the holder's value with
// their first argument, then delete the key or set its TTL.
var unknown = script{Action: Touch, value: 1, ttl: 2}

// known are the scripts of lock libraries, by the SHA-1 of their text. Scripts that unknown
// describes are left out.
var known = func() map[[sha1.Size]byte]script {
	scripts := map[[sha1.Size]byte]script{}
	for does, list := range map[script]string{
		{Action: Take, value: 1, ttl: 2}: `
			aecadef15d24ccd9360d8641cdec8e0337a0d343 aioredlock 0.2 to 0.7
			862f31bf38e9b63ce28d6e9e5143551bb34ef981 node-redlock 2.1 to 3
			d01fb69e6ecc8bad3ca9bacba9f4f9e96862313f node-redlock 4.0
			e5a322e2634ef59a516e8ea150cb085afafee684 node-redlock 4.1, 4.2
			96da70f7716f27d278a5218544df37fd8b0a5e4c node-redlock 5
			5688a2541c9edd77746bcd2385e65ff3639a664f redis-py 2.10
			7fe7b0bc5c4277123d3b46d49d1c5a8bc6e4fe8a redlock-rb 0.1
			a90bf4be8a6e440e3cc24540eb2f9ff1e16fbcc3 redlock-rb 0.2 to 1.2.1
			ceb2b2062e40c51a2b3963fd078bc71f11bdc65c redlock-rb 1.2.2 to 2
			b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79 redsync 4.12, extends or takes
			fa3d1aaa7e4145457755016a3d5daf72fa7a11bf rueidislock 1.0.38, PX
			3875d208d9e377969d2022550302cc83ad17b584 rueidislock 1.0.38, PXAT
			4384ed08baff4dd7071b6c78c516a2fded4ee3e7 rueidislock 1.0.38, PX, by force
			c10e8119872659b926e8e28002d9b7fccbf15617 rueidislock 1.0.38, PXAT, by force
			8426c8df41c64d8177dce3ecbbe9146ef3759cd2 Spring Integration 5.0 to 5.5.12
			6d2bc6d16248df19e144841297222544e3c7800a Spring Integration 5.5.13 to 6.0
			175897a4e379e99e79a54937be09226f76cdcfe5 Spring Integration 6.1 to 7.1
			382a00f43d29409f9e1ebe2cbcfe1ec089f8d154 Symfony 3.4.0 to 4.0
			81523960da32c1f15ecab9f1f0fae74f7e943d07 Symfony 3.4.15 to 4.4`,
		{Action: Take, value: 1, ttl: 3}: `
			80a1b5f2cfccec3b7119ba7721d2127682b691a7 bsm/redislock 0.9.4
			eb0c00d98f6f33b4262419a509002884540f30be bsm/redislock 0.10`,
		{Action: Take, value: 2, ttl: 3}: `
			6fdee501a3714553b74c0d67687b921b90b05d18 Symfony 5.2 to 7.1
			abdbb1413a25737fc4cfb9cf79ace1a22dad6ab3 Symfony 5.2 to 7.1, Redis before 5
			b5745b5be27d9033eb5d3eb254df2faf502b88df Symfony 5.2 to 7.1, shared
			dee54f77398d3c6d122b4111f3af8ccf1a93ac93 Symfony 5.2 to 7.1, shared, Redis before 5`,
		{Action: Take, done: null, value: 2, ttl: 1}: `
			9401052d872adfd0179ef8c8e8c028512707629a Redisson 2.2.4 to 3.12.2
			dad0f8d619e548e04f21fb48d50be5034df3adae Redisson 3.12.3 to 3.18; 4.7, spins
			149c5a8bf18676fd99e9e6e24923bd64d9b62f94 Redisson 3.19 to 4.7
			46b5551ba403d6152a7a6eca122e08728d6c8c66 Redisson 3.19 to 4.7, fenced
			706c2b7e93b133c46a7d8593a3a95d5ab55e6721 Redisson 2.7 to 3.11.0, fair
			c10436d1a94338a33b5ca6ac6f483f6b92193d48 Redisson 2.7 to 3.11.0, fair
			aa0a28d2eb7cbeb50151315a58eb75302d8dfa40 Redisson 3.11.1 to 3.30, fair
			762bfafa6be221431a0b668685dd15c926483619 Redisson 3.11.1 to 3.30, fair
			d20501c26a30adf6fb0fe9883bbbcc497e6157e2 Redisson 3.31 to 4.7, fair
			f453a73adbe05f097ff2810e5e0c0489a9350076 Redisson 3.31, fair
			929defe0321e0a4c943b4244951d3a730b6eaabc Redisson 3.32 to 3.44, fair
			8f6ed299ffd259f0539c20f89253998c0777ea75 Redisson 3.45 to 4.7, fair
			fc3a53f636fccf862762cc8178a398f73aeb17b7 Redisson 2.3 to 2.10.4, 3.5.4, writes
			6306ba3bf1f563b284bed52d305fce615c6664d9 Redisson 2.10.5, 3.5.5 to 4.7, writes
			3e6597e1d1157c59ac0d6efa2ba7e92ef418c41e Redisson 2.10.5, 3.5.5 to 3.11.0, reads
			95553a6ff11176c18e71344e89d116b06fd6f753 Redisson 3.11.1 to 4.7, reads`,

		{Action: Extend, ttl: 1}: `
			8e19a1ddbdee9138df9f32a480c57addab4353d1 Redisson 2.4 to 3.43
			6a3d31570dc6f4b0bd32bcdc8e75667747c6f635 Redisson 3.44 to 4.7
			6563941ff57e01b8cf61e86907b80686438a2f74 Redisson 2.13.1 to 3.43, reads
			1affef780a01e1406cb1968c62918f618d10d6a3 Redisson 3.44 to 3.52, reads
			d6564f42b98d6eece0e940a478ee248f80b8a90a Redisson 4.0 to 4.3, reads
			38d2b478dfbe264ab67c221b7e4be62245f00ba0 Redisson 4.4 to 4.7, reads`,
		{Action: Extend, ttl: 3}: `
			63be12a3515941092212f15c08327d60916de9fa Symfony 5.2 to 7.1
			fe7bee082a8220c6b621ace999a1ab57c4ab5145 Symfony 5.2 to 7.1, Redis before 5`,
		{Action: Extend, ttl: 2, seconds: true}: `
			d5f94f1848f0c54fff99d99dbc4d54184a157c02 Laravel 13.16`,
		{Action: Extend, done: zero, ttl: 1, seconds: true}: `
			2e1257df468c334a0dcc2ca4577c3c13f32fce24 python-redis-lock 3.0 to 3.5`,
		{Action: Extend, done: zero, ttl: 2, seconds: true}: `
			fed16109024d968d9496e4140fe1355bac05ebff python-redis-lock 3.6 to 4`,

		{Action: Release}: `
			93cfc048f82624d1670a310aa0ad58918c0824a5 Redisson 2.2.4 to 3.10.5
			3ffe249c16dee540ac8ab32e39bd408626b9aff7 Redisson 3.10.6 to 3.21
			778cea8aada230ae060b432fc333adaec85f2f4c Redisson 3.22, 3.23
			6866459238a13a701d42f4971f12d9f3a50e2442 Redisson 3.24 to 4.7
			7e9c80b3d786b95d5d4aaf8fd73adb9775fa6fb1 Redisson 2.2.1 to 3.21, by force
			605e338249a7a1d40df83b04f7658354f883b41b Redisson 3.22 to 4.7, by force
			5b9e58d1bcb8498e14aa1d5b49a1ca5b90748946 Redisson 3.15 to 3.23, spins
			73ac2729af29ea9a975f95e8097f7ee9a74cce3d Redisson 3.24 to 4.7, spins
			51b433c3cc9a6ca991b3aefec63d23490c246318 Redisson 3.15 to 4.7, spins, by force
			35d32367b21753c39b55dc64d1906fee627cc9a8 Redisson 2.8.2 to 3.21, fair
			14f85250fb2a386500bf8e4b25a8e95db140ff0c Redisson 3.22, 3.23, fair
			ca303f8587d0942f8a0021f62338626ca4dd0118 Redisson 3.24 to 3.30, fair
			367f80bd2e300e411fb0936d9b601e5bcb3fd4b6 Redisson 3.31 to 4.7, fair
			baa634f6184acc1b8f145e810a0e0e00967a3cbe Redisson 2.7.4 to 3.21, writes
			319a1cdf1b56c767a0a9adf2224250bf811f110c Redisson 3.22, 3.23, writes
			d29c5559782035515d32e926762830b3304b49be Redisson 3.24 to 3.43, writes
			21f5fb0f8ddfa9be5c3e0c9757c128796add75c6 Redisson 3.44 to 4.7, writes
			f5469be4bfe5232d519471092634b3ee84e5ee6f Redisson 2.10.5 to 3.21, reads
			92a54c31a4dc3b46f81e24a6dd5bb7d677c6f882 Redisson 3.22, 3.23, reads
			5947c0fee6ca25ae094ec1b3e7a2559a9273d29f Redisson 3.24 to 3.43, reads
			6e1b10e11ac0a3ed8e902562ecd32ce01b553039 Redisson 3.44 to 4.7, reads
			7726c7be95e2a0ed082ec1da1e26b562f5c8903f rueidislock to 1.0.37
			9eb62214c9af87ae5f9a9f12bb4520281c0d2ae1 rueidislock 1.0.38
			c1ae6c899d164de076f40ffe82eba8fb8e27af6c Spring Integration 5.5.7 to 6.0
			20b5c3728736e2367b496c16390f9df56916a76f Spring Integration 5.5.7 to 6.0`,
		{Action: Release, done: zero}: `
			6b20b1ed22f1d9a3df1dc2616e9cdd32a13e7740 python-redis-lock 3.0, 3.1
			dc1e6ea4fc20d70a60aa3ab10780c696e74d541e python-redis-lock 3.2, 3.3
			ae7cc25ea7f8e1bf59f60e7e4d68ebf4c24a97ad python-redis-lock 3.4, 3.5
			90da91872223f85eb1376a17e3c4df21ace8c54b python-redis-lock 3.6 to 4`,
	} {
		for line := range strings.Lines(list) {
			if hash, _, found := strings.Cut(strings.TrimSpace(line), " "); found {
				var sum [sha1.Size]byte
				hex.Decode(sum[:], []byte(hash))
				scripts[sum] = does
			}
		}
	}
	return scripts
}()

// maxScript is longer than any script of known, in bytes.
const maxScript = 2 << 10

// recent are texts that were looked up, by a hash that is cheaper than SHA-1.
var recent [256]atomic.Pointer[lookedUp]

type lookedUp struct {
	cheap uint64
	script
}

// scriptOf is what the script of EVAL or EVALSHA does.
func scriptOf(args [][]byte) script {
	var sum [sha1.Size]byte
	text := args[1]
	if len(args[0]) == len("evalsha") {
		if len(text) != hex.EncodedLen(len(sum)) {
			return unknown
		}
		hex.Decode(sum[:], text) // what is no hash is not known
		return scriptOfHash(sum)
	}
	if len(text) > maxScript {
		return unknown
	}
	cheap := proofOf(text)
	place := &recent[cheap%uint64(len(recent))]
	last := place.Load()
	if last == nil || last.cheap != cheap {
		last = &lookedUp{cheap, scriptOfHash(sha1.Sum(text))}
		place.Store(last)
	}
	return last.script
}

func scriptOfHash(sum [sha1.Size]byte) script {
	if s, isKnown := known[sum]; isKnown {
		return s
	}
	return unknown
}

// TakesLock reports whether the script of EVAL or EVALSHA takes a lock.
func TakesLock(args [][]byte) bool { return len(args) >= 2 && scriptOf(args).Action == Take }
