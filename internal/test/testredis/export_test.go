package testredis

// Sweep removes what killed processes have left.
func Sweep() { sweep(memoryFiles) }
