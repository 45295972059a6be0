package proxy

import "testing"

func TestAddSection(t *testing.T) {
	for _, test := range []struct {
		raw   string
		alone bool
		proto int
		want  string
	}{
		{"$0\r\n\r\n", true, 2, "$3\r\nnew\r\n"},
		{"=4\r\ntxt:\r\n", true, 3, "=7\r\ntxt:new\r\n"},
		{"$5\r\n# Old\r\n", false, 2, "$10\r\n# Old\r\nnew\r\n"},
		{"=9\r\ntxt:# Old\r\n", false, 3, "=14\r\ntxt:# Old\r\nnew\r\n"},
		{"-section (lockproxy) is not supported\r\n", true, 2, "$3\r\nnew\r\n"},
		{"-section (lockproxy) is not supported\r\n", true, 3, "=7\r\ntxt:new\r\n"},
		{"-section (other) is not supported\r\n", false, 2,
			"-section (other) is not supported\r\n"},
		{"-NOPERM this user has no permissions\r\n", true, 2,
			"-NOPERM this user has no permissions\r\n"},
		{"-ERR unknown command 'INFO'\r\n", true, 2, "-ERR unknown command 'INFO'\r\n"},
		{"-LOADING Redis is loading\r\n", true, 3, "-LOADING Redis is loading\r\n"},
	} {
		got := string(addSection([]byte(test.raw), "new", test.alone, test.proto))
		if got != test.want {
			t.Errorf("%q: %q, want %q", test.raw, got, test.want)
		}
	}
}
