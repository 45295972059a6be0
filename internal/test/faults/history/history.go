//go:build linux

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

// Now is the machine's monotonic clock, in ns: the same in every process, and unaffected by steps
// of the wall clock.
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
	Echo   Kind = "echo"  // a command with one right answer, Want
	Push   Kind = "push"  // RPUSH of Value to the client's list
	List   Kind = "list"  // LRANGE of that list once nothing is in flight: Got, an element a line
	// no operation: the client was told, or saw, that the session lock of Token is gone
	Lost  Kind = "lost"
	Probe Kind = "probe" // a LOCK with WAIT once all faults are over
	// Unblock is CLIENT UNBLOCK of the client of Number, which asked for the lock of Key, with the
	// option Want.
	Unblock Kind = "unblock"
	Login   Kind = "login" // as the user Owner with the password Value
	// Accept and Reject are when the password Value of the user Owner was set and removed.
	Accept Kind = "accept"
	Reject Kind = "reject"
	// Beat is a PING of a client that does nothing else. Timeout is how long one takes with the
	// pause behind it where nothing is slow.
	Beat Kind = "beat"
)

// Outcome is how an operation ended, as far as its client knows.
type Outcome string

// The outcomes. The zero Outcome is of an operation that has not ended: its client died or gave up.
const (
	Unknown Outcome = ""
	OK      Outcome = "ok"
	Null    Outcome = "null"
	Refused Outcome = "refused" // an error that says that nothing was done
	Fenced  Outcome = "fenced"
	Garbled Outcome = "garbled" // bytes that are not a reply, or not one that this command can have
)

// Op is one operation of one client.
type Op struct {
	Client  int    `json:"client"`
	Conn    int    `json:"conn,omitempty"` // which of the client's connections, if it has several
	Kind    Kind   `json:"kind"`
	Key     string `json:"key,omitempty"`
	Proxy   int    `json:"proxy"`
	Token   int64  `json:"token,omitempty"` // the token in UNLOCK, RELOCK and FENCE
	Timeout int64  `json:"timeout_ns,omitempty"`
	Wait    bool   `json:"wait,omitempty"`
	Within  int64  `json:"within_ns,omitempty"` // for how long a LOCK of a Number waits
	Number  int64  `json:"number,omitempty"`    // of the waiting client, as CLIENT ID has told it
	Session bool   `json:"session,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Place   int64  `json:"place_ns,omitempty"` // LOCK … PLACE: for how long the place is kept
	// Again: the client may have a place already, or shares the lock and asks for it alone.
	Again  bool   `json:"again,omitempty"`
	Shared bool   `json:"shared,omitempty"` // LOCK and RELOCK … SHARED, or with Limit > 0 … LIMIT
	Limit  int    `json:"limit,omitempty"`
	With   string `json:"with,omitempty"`    // LOCKALL and UNLOCKALL: the other lock
	HungUp bool   `json:"hung_up,omitempty"` // the client left without reading a reply
	Left   int64  `json:"left_ns,omitempty"` // when it left, or gave up waiting
	Value  string `json:"value,omitempty"`
	Call   int64  `json:"call_ns"`
	// when the kernel had a waiting LOCK; 0 if not known
	Sent    int64   `json:"sent_ns,omitempty"`
	Return  int64   `json:"return_ns,omitempty"` // 0 if the outcome is unknown
	Outcome Outcome `json:"outcome,omitempty"`
	Result  int64   `json:"result,omitempty"` // a lock's token; 1 or 0
	Want    string  `json:"want,omitempty"`
	Got     string  `json:"got,omitempty"`
}

// Acquired reports whether o is known to have acquired a lock.
func (o Op) Acquired() bool {
	return (o.Kind == Lock || o.Kind == Probe) && o.Outcome == OK && o.Result > 0
}

// Breaks says which promises a fault ends; see docs/guarantees.md.
type Breaks struct {
	// Leases: locks taken before the fault's end can be gone from its beginning on.
	Leases bool `json:"leases,omitempty"`
	// Writes that were acknowledged can be gone.
	Writes bool `json:"writes,omitempty"`
	// Tokens can go back: the last ones are forgotten and the clock is behind its highest value.
	Tokens bool `json:"tokens,omitempty"`
	// Notices: a proxy's messages to a client come late or never. The holder of a session lock may
	// not know that it is lost, and requests can arrive in another order than they were sent.
	Notices bool `json:"notices,omitempty"`
	// Arrival: requests sent before the fault's end can be read in another order.
	Arrival bool `json:"arrival,omitempty"`
	// Service: locks can't be taken or handed over until a while after the fault.
	Service bool `json:"service,omitempty"`
	// Orphans: a lock given to a dead client can stay until its timeout.
	Orphans bool `json:"orphans,omitempty"`
	// Searches: deadlocks across proxies are found late.
	Searches bool `json:"searches,omitempty"`
	// Listing: the upstream may not know a proxy's waiters until the proxy polls. Its scripts must
	// be loaded first, or a release found that it hears nothing, and took it for ended.
	Listing bool `json:"listing,omitempty"`
	// Users: a user is removed, and those who have logged in as it.
	Users bool `json:"users,omitempty"`
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
	// Proxies and Clients are those affected, or whose links were; nil is all.
	Proxies []int `json:"proxies,omitempty"`
	Clients []int `json:"clients,omitempty"`
	// Longer is by how many ns earlier leases can outlive
	// their timeouts: Redis's clock was set back.
	Longer int64 `json:"longer_ns,omitempty"`
}

// Concerns reports whether a fault can have affected an operation's client or its proxy.
func (f Fault) Concerns(o Op) bool {
	return (f.Proxies == nil || slices.Contains(f.Proxies, o.Proxy)) &&
		(f.Clients == nil || slices.Contains(f.Clients, o.Client))
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

// Seconds formats the time since start for people.
func Seconds(at, start int64) string {
	return fmt.Sprintf("%.3f s", time.Duration(at-start).Seconds())
}
