package proxy

import "testing"

func TestAddSection(t *testing.T) {
	for _, test := range []struct {
		raw   string
		alone bool
		want  string
	}{
		{"$0\r\n\r\n", false, "$3\r\nnew\r\n"},
		{"=4\r\ntxt:\r\n", false, "=7\r\ntxt:new\r\n"},
		{"$5\r\n# Old\r\n", true, "$3\r\nnew\r\n"},
		{"=9\r\ntxt:# Old\r\n", true, "=7\r\ntxt:new\r\n"},
		{"$5\r\n# Old\r\n", false, "$10\r\n# Old\r\nnew\r\n"},
		{"=9\r\ntxt:# Old\r\n", false, "=14\r\ntxt:# Old\r\nnew\r\n"},
		{"-section (other) is not supported\r\n", false,
			"-section (other) is not supported\r\n"},
		{"-NOPERM this user has no permissions\r\n", true,
			"-NOPERM this user has no permissions\r\n"},
		{"-ERR unknown command 'INFO'\r\n", true, "-ERR unknown command 'INFO'\r\n"},
		{"-LOADING Redis is loading\r\n", true, "-LOADING Redis is loading\r\n"},
	} {
		if got := string(addSection([]byte(test.raw), "new", test.alone)); got != test.want {
			t.Errorf("%q: %q, want %q", test.raw, got, test.want)
		}
	}
}
