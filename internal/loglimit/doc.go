// Package loglimit keeps clients from filling the log: whatever they do, a message is written ten
// times a second at most. Lines is a logger that counts by message. A Limit is for a caller that
// must ask something before it can write the line.
package loglimit
