//go:build !race

package virtual_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// The renewals of a session lock never shorten it: by another proxy it was given more time.
func TestRenewalDoesNotShorten(t *testing.T) {
	for _, kind := range []string{"", " SHARED"} {
		virtualtest.Run(t, func(t *testing.T) {
			store, p := virtualtest.StartBoth(t)
			other := proxytest.Dial(t, proxytest.Start(t, store.URL(), nil).Addr)
			token := proxytest.Dial(t, p.Addr).Lock("job 60 SESSION" + kind)
			time.Sleep(time.Second)
			other.Expect(fmt.Sprintf("RELOCK job %d 7200", token), ":1\r\n")
			at := fmt.Sprint(time.Now().Add(2 * time.Hour).UnixMilli())
			for range 10 {
				time.Sleep(time.Minute)
				if info := other.Do("LOCKINFO job"); !strings.Contains(info, at) {
					t.Fatalf("it does not last until %s any more:\n%s", at, info)
				}
			}
		})
	}
}
