package locks_test

import (
	"fmt"
)

// readToken is the token of a reply, 0 for none.
func readToken(reply string) (token int64) {
	fmt.Sscanf(reply, ":%d\r\n", &token)
	return token
}
