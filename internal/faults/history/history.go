//go:build linux

// Package history is what clients of a lock service saw and what was done to it meanwhile: the material that package check
// judges.
//
// All times are of one clock, the machine's monotonic one (Now), so that several processes can share a history.
package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"
	"unsafe"
)

// Now is the machine's monotonic clock, in ns: the same in every process, and no step of the wall clock moves it.
func Now() int64 {
	var ts syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

const clockMonotonic = 1

// Kind is what was asked.
type Kind string

// The kinds of operation.
const (
	Lock   Kind = "lock"
	Unlock Kind = "unlock"
	Relock Kind = "relock"
	Fence  Kind = "fence" // FENCE key token SET register value
	Get    Kind = "get"   // of the register
	Echo   Kind = "echo"  // whatever has one right answer, Want
	Push   Kind = "push"  // RPUSH of Value to the client's own list
	List   Kind = "list"  // LRANGE of that list, once nothing is under way any more: Got, an element a line
	Lost   Kind = "lost"  // no operation: the client was told, or saw, that the session lock of Token is gone
	Probe  Kind = "probe" // a LOCK with WAIT once all faults are over
)

// Outcome is how an operation ended, as far as its client knows.
type Outcome string

// The outcomes. The zero Outcome is of one that has not ended: its client has died, or gave up.
const (
	Unknown Outcome = ""
	OK      Outcome = "ok"
	Null    Outcome = "null"
	Refused Outcome = "refused" // an error that says that nothing was done
	Fenced  Outcome = "fenced"
	Garbled Outcome = "garbled" // what came is no reply, or none that this command can have
)

// Op is one operation of one client.
type Op struct {
	Client  int     `json:"client"`
	Kind    Kind    `json:"kind"`
	Key     string  `json:"key,omitempty"`
	Proxy   int     `json:"proxy"`
	Token   int64   `json:"token,omitempty"` // what unlock, relock and fence named
	Timeout int64   `json:"timeout_ns,omitempty"`
	Wait    bool    `json:"wait,omitempty"`
	Session bool    `json:"session,omitempty"`
	Owner   string  `json:"owner,omitempty"`
	HungUp  bool    `json:"hung_up,omitempty"` // the client left without reading a reply
	Left    int64   `json:"left_ns,omitempty"` // when it did
	Value   string  `json:"value,omitempty"`
	Call    int64   `json:"call_ns"`
	Sent    int64   `json:"sent_ns,omitempty"`   // when a LOCK that waits was with the kernel; 0 if not known
	Return  int64   `json:"return_ns,omitempty"` // 0 if the outcome is unknown
	Outcome Outcome `json:"outcome,omitempty"`
	Result  int64   `json:"result,omitempty"` // a lock's token; 1 or 0
	Want    string  `json:"want,omitempty"`
	Got     string  `json:"got,omitempty"`
}

// Acquired reports whether o is known to have been given a lock.
func (o Op) Acquired() bool {
	return (o.Kind == Lock || o.Kind == Probe) && o.Outcome == OK && o.Result > 0
}

// Breaks says which promises a fault ends, see docs/guarantees.md.
type Breaks struct {
	// Leases: locks taken before the fault's end may be gone from its beginning on.
	Leases bool `json:"leases,omitempty"`
	// Writes that were acknowledged may be gone.
	Writes bool `json:"writes,omitempty"`
	// Tokens may go back: what was known of the last ones is gone and the clock is behind what it once was.
	Tokens bool `json:"tokens,omitempty"`
	// Notices: what a proxy tells a client comes late or never, so a session lock's holder may not know that it is lost; nor does
	// what is sent first arrive first.
	Notices bool `json:"notices,omitempty"`
	// Arrival: of what was sent before the fault's end, what was sent first needn't have been read first.
	Arrival bool `json:"arrival,omitempty"`
	// Service: locks can't be taken or handed on until a while after the fault.
	Service bool `json:"service,omitempty"`
	// Orphans: a lock that was given to somebody who has died may stay until its timeout.
	Orphans bool `json:"orphans,omitempty"`
	// Vanishes: the proxies must find out by themselves that the clients are gone.
	Vanishes bool `json:"vanishes,omitempty"`
}

// Fault is something that was done to the service.
type Fault struct {
	Kind   string `json:"fault"`
	Target string `json:"target,omitempty"`
	Detail string `json:"detail,omitempty"`
	From   int64  `json:"from_ns"`
	To     int64  `json:"to_ns"`
	Breaks Breaks `json:"breaks"`
	// Proxies and Clients are those that it was done to, or whose links; nil is all.
	Proxies []int `json:"proxies,omitempty"`
	Clients []int `json:"clients,omitempty"`
	// Longer is by how much leases that were given before may outlive their timeouts, ns: Redis's clock has gone back.
	Longer int64 `json:"longer_ns,omitempty"`
}

// Concerns reports whether what was done may have been felt by an operation's client, or by the proxy that it asked.
func (f Fault) Concerns(o Op) bool {
	return (f.Proxies == nil || slices.Contains(f.Proxies, o.Proxy)) && (f.Clients == nil || slices.Contains(f.Clients, o.Client))
}

// History is what happened in one round.
type History struct {
	Ops    []Op
	Faults []Fault
}

// Write writes h as one JSON object a line: the faults, then the operations.
func (h History) Write(w io.Writer) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	for _, f := range h.Faults {
		if err := enc.Encode(f); err != nil {
			return err
		}
	}
	for _, o := range h.Ops {
		if err := enc.Encode(o); err != nil {
			return err
		}
	}
	return out.Flush()
}

// Save writes h to a file.
func (h History) Save(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := h.Write(f); err != nil {
		f.Close()
		return fmt.Errorf("cannot write the history: %w", err)
	}
	return f.Close()
}

// Read reads what Write has written.
func Read(r io.Reader) (h History, err error) {
	in := json.NewDecoder(r)
	for {
		var line struct {
			Fault
			Op
		}
		var raw json.RawMessage
		if err = in.Decode(&raw); err == io.EOF {
			return h, nil
		} else if err != nil {
			return h, err
		}
		var probe struct {
			Fault string `json:"fault"`
		}
		json.Unmarshal(raw, &probe)
		if probe.Fault != "" {
			err = json.Unmarshal(raw, &line.Fault)
			h.Faults = append(h.Faults, line.Fault)
		} else {
			err = json.Unmarshal(raw, &line.Op)
			h.Ops = append(h.Ops, line.Op)
		}
		if err != nil {
			return h, err
		}
	}
}

// Seconds is for people: the time since start.
func Seconds(at, start int64) string {
	return fmt.Sprintf("%.3f s", time.Duration(at-start).Seconds())
}
