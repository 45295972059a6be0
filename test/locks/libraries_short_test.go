//go:build !clients

package locks_test

import "time"

// librariesLast is how long TestLibrariesNextToLOCK runs; a minute in make test-clients.
const librariesLast = 2500 * time.Millisecond
