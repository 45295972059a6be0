package proxy

import (
	"math"
	"syscall"
)

// otherFiles is how many open files are left for what is neither a client nor in reserve: lanes, listeners, files for what clients leave unread.
const otherFiles = 512

// reserveLimit is how many connections may be in reserve, of a process that may have so many files open: one for each client, and fewer
// where clients need the files, but some in any case.
func reserveLimit(files uint64, clients int) int {
	free := int64(min(files, math.MaxInt32)) - int64(clients) - otherFiles
	return int(max(16, min(int64(clients), free)))
}

// openFiles is how many files this process may have open.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0 // as if there were few
	}
	return uint64(limit.Cur)
}
