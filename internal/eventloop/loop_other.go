//go:build !linux

package eventloop

import "context"

// Loops do not exist here.
type Loops struct{}

type slotRef struct{}

// Start returns nil.
func Start(n int) (*Loops, error) { return nil, nil }

// Answer returns nil.
func (ls *Loops) Answer(ctx context.Context) error { return nil }

// Stop does nothing.
func (ls *Loops) Stop() {}

func (ls *Loops) post(r *Registration) {}

func (r *Registration) register() {}

func (r *Registration) registered() bool { return false }

// Unregister does nothing.
func (r *Registration) Unregister() {}
