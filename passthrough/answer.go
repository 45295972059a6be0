package passthrough

import (
	"lockproxy/internal/resp"
)

// Answer is a future reply. Done is closed when it has arrived.
type Answer struct {
	Done chan struct{}
	raw  []byte
	err  error
}

// Value waits for the reply and decodes it. The error is an *upstream.Error if the connection was
// lost first.
func (a *Answer) Value() (resp.Value, error) {
	<-a.Done
	if a.err != nil {
		return resp.Value{}, a.err
	}
	return resp.ParseValue(a.raw)
}

// Raw waits for the reply and returns its bytes.
func (a *Answer) Raw() ([]byte, error) {
	<-a.Done
	return a.raw, a.err
}
