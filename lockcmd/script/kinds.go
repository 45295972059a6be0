package script

// The kinds of locks, as info.lua names them, and a name for all.
const (
	KindLockproxy = "lockproxy"
	KindTimestamp = "timestamp"
	KindOther     = "other"
	KindAll       = "all"
)
