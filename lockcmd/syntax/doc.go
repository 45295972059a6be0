// Package syntax reads the arguments of lock commands. A function for each command returns what was
// asked for, or a UsageError with Redis's own wording and code, which names the argument.
package syntax
