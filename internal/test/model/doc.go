// Package model explores the model of the lock protocol with spin. It explores every configuration
// of configs.go to the end, or until it finds the expected violation. README.md is its manual.
//
//	locktools model                  all configurations; fails if one does not behave as expected
//	locktools model -quick           a few of them, in a minute
//	locktools model -run 'L1'        configurations whose names match
//	locktools model -trail 'broken: no settling'  the shortest run with that violation
package model
