package resp

import "testing"

// What a request with many arguments has taken is given back.
func TestForgetMany(t *testing.T) {
	f := NewFramer(Limits{})
	request := AppendCommand(nil, append([]string{"MGET"}, make([]string, 2*maxIdleSpans)...)...)
	if req, ok, err := f.Next(request); !ok || err != nil || len(req.Args) != 2*maxIdleSpans+1 {
		t.Fatal(len(req.Args), ok, err)
	}
	if f.Forget(); cap(f.args)+cap(f.spans) > 2*maxIdleSpans {
		t.Errorf("it keeps room for %d arguments and %d spans", cap(f.args), cap(f.spans))
	}
}
