// Package grace repairs locks that were taken over from foreign clients.
//
// LOCK takes over a lock whose timestamp has expired. A foreign client that has lost this race may
// write its own timestamp a moment later, before it knows. So only the lock record counts for a
// grace period, script.TakeoverGrace. Start begins one: repair.lua runs at repairTimes, on a
// background client, and puts the timestamp right.
package grace
