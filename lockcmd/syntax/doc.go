// Package syntax knows the lock commands as a client writes them: Specs lists them, with the number
// of their arguments, what COMMAND says of them and their Usage, and HelpText is LOCK HELP.
//
// A function for each command reads its arguments. It returns what was asked for, or a UsageError
// with Redis's own wording and code, which names the argument.
//
// The files know those before them: errors, option_words, options, once, seen, commands, docs, usage.
package syntax
