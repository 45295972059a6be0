//go:build unix

package relay_test
