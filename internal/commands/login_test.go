package commands

import (
	"bytes"
	"fmt"
	"testing"
)

func TestParseLogin(t *testing.T) {
	for request, want := range map[string]string{
		"AUTH":                     `user nil, password nil, proto 0, name nil`,
		"auth p":                   `user nil, password "p", proto 0, name nil`,
		"AUTH u p":                 `user "u", password "p", proto 0, name nil`,
		"AUTH  p":                  `user "", password "p", proto 0, name nil`,
		"AUTH u p x":               `user nil, password nil, proto 0, name nil`,
		"HELLO":                    `user nil, password nil, proto 0, name nil`,
		"HELLO 3":                  `user nil, password nil, proto 3, name nil`,
		"hello 2 setname n auth":   `user nil, password nil, proto 2, name "n"`,
		"HELLO 3 Auth u p SetName": `user "u", password "p", proto 3, name nil`,
		"HELLO x AUTH u p":         `user "u", password "p", proto 0, name nil`,
	} {
		l := ParseLogin(bytes.Split([]byte(request), []byte(" ")))
		text := func(b []byte) string {
			if b == nil {
				return "nil"
			}
			return fmt.Sprintf("%q", b)
		}
		got := fmt.Sprintf("user %s, password %s, proto %d, name %s",
			text(l.User), text(l.Password), l.Proto, text(l.Name))
		if got != want {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
}
