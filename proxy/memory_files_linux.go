package proxy

import (
	"os"

	"golang.org/x/sys/unix"
)

// inMemory reports whether the files in a directory are kept in memory.
func inMemory(dir string) bool {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return false
	}
	kind := uint32(fs.Type)
	return kind == unix.TMPFS_MAGIC || kind == unix.RAMFS_MAGIC
}

// warnOfMemoryFiles warns if temporary files take memory: then --max-unread does.
func (s *Server) warnOfMemoryFiles() {
	if dir := os.TempDir(); inMemory(dir) {
		s.log.Warn("replies that clients leave unread are kept in memory, since TMPDIR names a "+
			"directory there: name one on a disk, or lower --max-unread", "tmpdir", dir,
			"max_unread", s.cfg.MaxUnread)
	}
}
