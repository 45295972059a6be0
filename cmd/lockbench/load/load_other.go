//go:build !linux

package load

import (
	"context"
	"errors"
)

var errLinux = errors.New("the load generator needs Linux (epoll)")

// Clients are connections to one server.
type Clients struct{}

// Open fails: the generator needs Linux.
func Open(string, int) (*Clients, error) { return nil, errLinux }

// Drive fails: the generator needs Linux.
func (*Clients) Drive(context.Context, Plan) (Result, error) { return Result{}, errLinux }

// Close does nothing: there are no connections.
func (*Clients) Close() {}
