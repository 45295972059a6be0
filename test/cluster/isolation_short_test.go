//go:build !faults

package cluster_test

import "time"

// isolationLasts is how long each part of TestIsolationInACluster takes.
const isolationLasts = time.Second
