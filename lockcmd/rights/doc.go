// Package rights finds out whether a user of Redis may do all that the lock commands need: Try does
// each of it, without effect. `lockproxy check` prints what is missing, and a proxy logs it when its
// upstream begins to serve.
package rights
