//go:build !race

package virtual_test

import (
	"fmt"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/lockcmd/keyname"
)

// LOCKALL takes all its locks or none, also if one has the name of another's record.
func TestLockAllOfALockAndARecord(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		record := keyname.Record([]byte("job"))
		for _, keys := range []string{"job " + record, record + " job"} {
			c.Expect("LOCKALL 30 2 "+keys, fmt.Sprintf(
				"-ERR %q is the record of the lock \"job\": choose another name\r\n", record))
			c.Expect("LOCKALL 30 2 "+keys+" WAIT 1", "-ERR …")
			token := c.Lock("job 30")
			c.Expect("FENCE job "+fmt.Sprint(token)+" PING", "+PONG\r\n")
			c.Expect(proxytest.Unlock("job", token), ":1\r\n")
		}
	})
}
