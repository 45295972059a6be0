package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lockproxy/cmd/lockbench/load"
	"lockproxy/internal/resp"
)

// driven is a run of lockbench's own load generator against one target.
type driven struct {
	rate       float64 // requests/s answered in time
	latencies  durations
	unanswered int
	// per request; in both, other work of the process counts too, such as accepting
	redisCPU time.Duration
	proxyCPU time.Duration // per request; 0 directly
}

// What the load generator asks for: the usual value.
const usualKey = "lockbench:value"

// getPlan is to GET the usual value.
func (b *bench) getPlan() (load.Plan, error) {
	value := strings.Repeat("x", usualSize)
	if _, err := b.monitor.do("SET", usualKey, value); err != nil {
		return load.Plan{}, err
	}
	return load.Plan{Request: resp.AppendCommand(nil, "GET", usualKey),
		Reply: fmt.Appendf(nil, "$%d\r\n%s\r\n", len(value), value)}, nil
}

// driveClients runs a plan with clients of a target, which are connected already: what connecting
// costs is not measured.
func (b *bench) driveClients(t *target, clients *load.Clients, p load.Plan) (*driven, error) {
	var proxy, result = time.Duration(0), load.Result{}
	used, err := b.during(func() (err error) {
		before, err := t.server.process().cpu()
		if err != nil {
			return err
		}
		if result, err = clients.Drive(b.ctx, p); err != nil {
			return err
		}
		after, err := t.server.process().cpu()
		proxy = after - before
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(result.Latencies)
	answered := len(result.Latencies) - result.Unanswered
	d := &driven{rate: result.Rate, latencies: result.Latencies, unanswered: result.Unanswered,
		redisCPU: used.cpu / time.Duration(max(answered, 1))}
	if t.name != viaDirect {
		d.proxyCPU = proxy / time.Duration(max(answered, 1))
	}
	return d, nil
}

// driveNew is driveClients with n new clients.
func (b *bench) driveNew(t *target, n int, p load.Plan) (*driven, error) {
	clients, err := load.Open(t.server.addr, n)
	if err != nil {
		return nil, err
	}
	defer clients.Close()
	return b.driveClients(t, clients, p)
}
