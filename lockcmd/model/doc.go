// Command model explores the model of the lock protocol with spin: every configuration of
// configs.go to the end, or until what it is expected to find has been found. README.md is its
// manual.
//
//	go run ./lockcmd/model                      all; fails unless each shows what it should
//	go run ./lockcmd/model -quick               a part, in a minute
//	go run ./lockcmd/model -run 'L1'            those whose names match
//	go run ./lockcmd/model -trail 'broken: no settling'  the shortest run that breaks it
package main
