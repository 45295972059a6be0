package slot

import "testing"

// The specification's own check value.
func TestCRC16(t *testing.T) {
	if got := CRC16(0, []byte("123456789")); got != 0x31C3 {
		t.Errorf("%#x, want 0x31C3", got)
	}
	if got := CRC16(CRC16(0, []byte("1234")), []byte("56789")); got != 0x31C3 {
		t.Errorf("in two pieces: %#x", got)
	}
}

// As CLUSTER KEYSLOT of Redis 7.0 says.
func TestOf(t *testing.T) {
	for key, want := range map[string]int{
		"": 0, "foo": 12182, "{foo}bar": 12182, "foo{}bar": 14292, "foo{{bar}}zap": 4015,
		"foo{bar}{zap}": 5061, "bar": 5061, "{bar": 4015,
	} {
		if got := Of([]byte(key)); got != want {
			t.Errorf("%q: %d, want %d", key, got, want)
		}
	}
}

func TestTag(t *testing.T) {
	for key, want := range map[string]string{"a{b}c": "b", "{}": "", "{": "", "}{": "",
		"a}{b}": "b", "{a}{b}": "a", "{{a}": "{a"} {
		if got, ok := Tag([]byte(key)); string(got) != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", key, got, ok)
		}
	}
}
