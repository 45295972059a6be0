// Package mutate judges the tests. It changes one condition, constant or statement of the product
// at a time, runs the tests that reach the change, and prints the changes that no test notices.
// Main is the program.
//
// A seed draws the changes of each place: a package, or the Lua scripts. A change is named by its
// function, its kind and the text that it changes, so that other lines do not move it: the same
// seed draws it again in later versions, and equivalent.txt can list it.
//
// All changes are compiled at once. Each becomes a condition on a number, and an environment
// variable chooses the number at run time (changeVariable). The compiler reads the changed files by
// an overlay, and the tree stays as it is. A change that does not compile is replaced by another.
//
// Each test of a suite first runs alone, without a change, and notes the changes that it reaches.
// The tests that reach a change then run with it, the quick ones first. A test that fails has
// caught the change if it passes without it.
//
// Existing tools (gremlins, go-mutesting) compile each change by itself, run only the tests of its
// package, and know no Lua.
package mutate
