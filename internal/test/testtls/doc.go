// Package testtls makes certificate authorities and certificates for tests, as files and in memory.
package testtls
