package proxy

import (
	"strconv"
	"strings"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// evaluate runs a script through do: by its hash, and if the upstream doesn't have it, by its source. The second request
// is no retry: NOSCRIPT says that nothing has run.
func evaluate(do func(raw []byte) (resp.Value, error), script *lockcmd.Script, keys, args []string) (resp.Value, error) {
	cmd := make([]string, 0, 3+len(keys)+len(args))
	cmd = append(cmd, "EVALSHA", script.SHA, strconv.Itoa(len(keys)))
	cmd = append(append(cmd, keys...), args...)
	v, err := do(resp.AppendCommand(nil, cmd...))
	if err == nil && v.IsError() && strings.HasPrefix(string(v.Text), "NOSCRIPT") {
		cmd[0], cmd[1] = "EVAL", script.Source
		v, err = do(resp.AppendCommand(nil, cmd...))
	}
	return v, err
}

// Eval runs a script as this session's client: on its connection, and so as its user, on its database and in its order.
func (s *session) Eval(script *lockcmd.Script, keys, args []string) (resp.Value, error) {
	return evaluate(func(raw []byte) (resp.Value, error) {
		answer := s.pipe.Call(raw)
		s.await(answer)
		return answer.Value()
	}, script, keys, args)
}

// single runs scripts on a connection of the proxy's own.
type single struct {
	conn    *passthrough.Single
	timeout time.Duration
}

func (c single) Eval(script *lockcmd.Script, keys, args []string) (resp.Value, error) {
	return evaluate(func(raw []byte) (resp.Value, error) { return c.conn.Do(raw, c.timeout) }, script, keys, args)
}
