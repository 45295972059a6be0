//go:build clients

package locks_test

import "time"

const librariesLast = time.Minute

// pollers is how many clients TestParkSparesRedis has.
const pollers = 100
