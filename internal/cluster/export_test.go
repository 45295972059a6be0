package cluster

import "time"

// SetClosing says how long a node that is no master any more can take to say so.
func (c *Conn) SetClosing(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes.closing = d
}
