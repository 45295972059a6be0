// Package slot computes to which slot of a Redis Cluster a key belongs, by the rules of the cluster
// specification. It is pure: no I/O, no clock.
package slot
