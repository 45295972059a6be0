//go:build clients

package locks_test

import "time"

const librariesLast = time.Minute
