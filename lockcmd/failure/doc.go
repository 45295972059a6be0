// Package failure classifies the errors of lock commands.
//
// MayHaveRun says whether what was asked may have been done: then the proxy releases what it may
// have taken. IsTransient says whether a waiter goes on. The errors here are those that the proxy
// itself makes; those of Redis are script.ServerError, those of a search deadlock.Error. All are
// worded for the client: it reads whether it has the lock, and what to do.
package failure
