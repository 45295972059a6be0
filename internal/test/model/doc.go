// Package model explores the model of the lock protocol with spin: every configuration of configs.go
// to the end, or until what it is expected to find has been found. README.md is its manual.
//
//	locktools model                  all; fails unless each shows what it should
//	locktools model -quick           a part, in a minute
//	locktools model -run 'L1'        those whose names match
//	locktools model -trail 'broken: no settling'  the shortest run that breaks it
package model
