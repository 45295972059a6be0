//go:build !race

package syntax

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// anyCase writes a word in a mixture of capitals and small letters.
func anyCase(t *rapid.T, word string) []byte {
	out := []byte(word)
	for i := range out {
		if rapid.Bool().Draw(t, "capital") {
			out[i] = bytes.ToUpper(out[i : i+1])[0]
		} else {
			out[i] = bytes.ToLower(out[i : i+1])[0]
		}
	}
	return out
}

func secondsOf(d time.Duration) []byte { return fmt.Appendf(nil, "%.3f", d.Seconds()) }

// LOCK's options mean the same in every order and case, whatever the owner's name is. An option
// that is given twice or without its value is an error, and so is another word.
func TestLockOptionsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const longest = time.Hour
		ms := rapid.IntRange(1, int(longest.Milliseconds()))
		want := Lock{}
		want.Timeout = time.Duration(ms.Draw(t, "timeout")) * time.Millisecond
		var options [][][]byte
		if rapid.Bool().Draw(t, "waits") {
			ms := rapid.IntRange(0, 1<<40).Draw(t, "wait")
			want.Waits, want.Wait = true, time.Duration(ms)*time.Millisecond
			options = append(options, [][]byte{anyCase(t, "WAIT"), secondsOf(want.Wait)})
		}
		if want.Session = rapid.Bool().Draw(t, "session"); want.Session {
			options = append(options, [][]byte{anyCase(t, "SESSION")})
			if rapid.Bool().Draw(t, "limited") {
				ms := rapid.IntRange(1, 1<<40).Draw(t, "max")
				want.Longest = time.Duration(ms) * time.Millisecond
				options = append(options, [][]byte{anyCase(t, "MAX"), secondsOf(want.Longest)})
			}
		}
		if rapid.Bool().Draw(t, "owned") {
			word := rapid.SampledFrom([][]byte{
				[]byte("WAIT"), []byte("session"), []byte("OWNER"), []byte(" "), []byte("0")})
			name := rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 1, 20), word)
			want.Owner = string(name.Draw(t, "owner"))
			options = append(options, [][]byte{anyCase(t, "OWNER"), []byte(want.Owner)})
		}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
		random.Shuffle(len(options), func(i, j int) {
			options[i], options[j] = options[j], options[i]
		})
		args := [][]byte{secondsOf(want.Timeout)}
		for _, option := range options {
			args = append(args, option...)
		}
		if got, err := ParseLock(args, longest); err != nil || got != want {
			t.Fatalf("%q: got %+v, %v, want %+v", args, got, err, want)
		}

		var wrong [][]byte
		var near []byte
		switch rapid.IntRange(0, 2).Draw(t, "what is wrong") {
		case 0: // an option twice
			if len(options) == 0 {
				return
			}
			option := options[random.IntN(len(options))]
			wrong, near = append(args[:len(args):len(args)], option...), option[0]
		case 1: // one that there isn't
			word := rapid.StringMatching(`[A-Za-z]{0,8}`).Filter(func(s string) bool {
				upper := strings.ToUpper(s)
				return upper != "WAIT" && upper != "SESSION" && upper != "OWNER" &&
					upper != "SHARED"
			}).Draw(t, "word")
			wrong, near = append(args[:len(args):len(args)], []byte(word)), []byte(word)
		case 2: // one without its value, or with an empty one
			cut := rapid.SampledFrom([][][]byte{{[]byte("WAIT")}, {[]byte("OWNER")},
				{[]byte("OWNER"), nil}, {[]byte("LIMIT")}, {[]byte("MAX")}}).Draw(t, "cut")
			wrong, near = append(args[:1:1], cut...), cut[0]
		}
		if got, err := ParseLock(wrong, longest); err == nil ||
			!strings.HasPrefix(err.Error(), fmt.Sprintf("ERR syntax error near %q: ", near)) {
			t.Fatalf("%q: got %+v, %v, want a syntax error near %q", wrong, got, err, near)
		}
	})
}
