package keyname

import (
	"testing"
)

func TestShapeOf(t *testing.T) {
	for key, want := range map[string]string{
		"":                                       "",
		"job":                                    "job",
		"order:17":                               "order:*",
		"order:17:3":                             "order:*:*",
		"17":                                     "*",
		"user42x7":                               "user*x*",
		"v1.2.30":                                "v*.*.*",
		"cache:beef":                             "cache:beef",
		"decade":                                 "decade",
		"deadbeef":                               "deadbeef", // it could be a word
		"deadbee1":                               "*",
		"k:00ff00ff0":                            "k:*",
		"{a}:9\xff":                              "{a}:*\xff",
		"u:3F2504E0-4F89-11D3-9A0C-0305E82C3301": "u:*",
		"3f2504e0-4f89-11d3-9a0c-0305e82c3301:x": "*:x",
		"3f2504e0-4f89-11d3-9a0c-0305e82c33012":  "*-*f*-*d*-*a*c-*",
		"x3f2504e0-4f89-11d3-9a0c-0305e82c3301":  "x*f*e*-*f*-*d*-*a*c-*",
		Claim([]byte("order:17")):                "order:*:once:*",
		Claim([]byte("{order}:17")):              "{order}:*:once:*",
		"order:17:once:xyz":                      "order:*:once:xyz",
		"session:9f86d081884c7d659a2feaa0c55ad015": "session:*",
	} {
		if got := Shape(key); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}
