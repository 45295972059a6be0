//go:build !linux

package busypoll

func prepare() (poll func() bool, yield func()) { return nil, nil }
