//go:build !faults

package cluster_test

// isolationLosses is how often each part of TestIsolationInACluster loses connections.
const isolationLosses = 15
