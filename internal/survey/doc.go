// Package survey keeps a view of the locks that are held, for people to look at.
//
// Locks can only be found by reading every key's name. So a Survey does it piece by piece: each
// Step scans a little further, inspects again the locks whose last inspection is oldest, and adds
// those that the Source knows by itself. However many keys and locks there are, a Step costs the
// upstream no more than its Budget. With more of them the view is older.
//
// Between inspections a lock's remaining time counts down, and one whose time has passed is left
// out.
package survey
