// Package survey keeps a view of the locks that are held, for people to look at.
//
// Locks can only be found by reading every key's name. So a Survey does it piece by piece: each
// Step scans a little further, looks again at the locks that it has not looked at for longest, and
// takes in what the Source knows by itself. However many keys and locks there are, a Step costs the
// upstream no more than its Budget; what grows is the age of what is shown.
//
// Between two looks a lock's remaining time is reckoned on, and one whose time has passed is left
// out.
package survey
