//go:build !linux

package eventloop

// Loops do not exist here.
type Loops struct{}

type slotRef struct{}

// Start returns nil.
func Start(n int) (*Loops, error) { return nil, nil }

// Stop does nothing.
func (ls *Loops) Stop() {}

func (r *Registration) register() {}

func (r *Registration) registered() bool { return false }

// Unregister does nothing.
func (r *Registration) Unregister() {}
