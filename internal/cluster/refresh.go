package cluster

// A Cluster asks the nodes which of them serves which slot.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/resp"
)

const (
	// refreshInterval is how often Follow asks.
	refreshInterval = time.Second
	// refreshGap is the least time between two refreshes that Conns ask for.
	refreshGap = 50 * time.Millisecond
	// askTimeout bounds what one node is asked.
	askTimeout = time.Second
	// maxMap bounds each reply, bytes.
	maxMap = 64 << 20
)

// Dialer opens a connection to a node, host:port, and sends setup, whose replies it reads. If the
// node refuses some of it, but for what is only shown to people, the error has a method Refusal,
// with the reply to what the node would have been asked.
type Dialer func(ctx context.Context, addr string, setup [][]string) (net.Conn, error)

// asker is how nodes are asked for the map.
type asker struct {
	dial  Dialer
	login [][]string // what each node is sent first
}

var errNoNode = errors.New("no node is known")

// Follow refreshes the map every second until ctx ends, and calls report with the outcome. login is
// what each node is sent first.
func (cl *Cluster) Follow(
	ctx context.Context, dial Dialer, login [][]string, report func(err error),
) {
	loopguard.MayWait()
	tick := time.NewTicker(refreshInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		if cl.beginRefresh() {
			err := cl.refresh(ctx, dial, login, 0)
			own := &asker{dial, login}
			if err != nil {
				own = nil
			}
			cl.own.Store(own)
			report(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// beginRefresh reports whether the caller is to call refresh: no other caller has begun one.
func (cl *Cluster) beginRefresh() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	begun := !cl.refreshing
	cl.refreshing = true
	return begun
}

// refresh asks one node after the other, until one tells the map; the first not before gap has
// passed since the last refresh. The error is the last node's.
func (cl *Cluster) refresh(
	ctx context.Context, dial Dialer, login [][]string, gap time.Duration,
) error {
	loopguard.MayWait()
	cl.mu.Lock()
	wait := time.NewTimer(time.Until(cl.refreshed.Add(gap)))
	cl.refreshed = time.Now()
	cl.mu.Unlock()
	defer func() {
		wait.Stop()
		cl.mu.Lock()
		defer cl.mu.Unlock()
		cl.refreshing = false
	}()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
	err := errNoNode
	for _, addr := range cl.nodes() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		m, epoch, askErr := askAt(ctx, dial, login, addr)
		if askErr == nil && !cl.update(m, epoch, time.Now()) {
			askErr = errOutdated
		}
		if askErr == nil {
			return nil
		}
		err = fmt.Errorf("%s: %w", addr, askErr)
	}
	return err
}

var errOutdated = errors.New("it knows an older epoch of the cluster than the proxy does")

// nodes is the masters, the replicas and the seeds.
func (cl *Cluster) nodes() (addrs []string) {
	more := cl.seeds
	if m := cl.slots.Load(); m != nil {
		more = append(slices.Clone(m.replicas), more...)
	}
	addrs = cl.candidates()
	for _, addr := range more {
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// nodeError is what a node has answered instead of a map.
type nodeError string

func (e nodeError) Error() string { return string(e) }

func askAt(
	ctx context.Context, dial Dialer, login [][]string, addr string,
) (*slotMap, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	nc, err := dial(ctx, addr, login)
	if err != nil {
		return nil, 0, err
	}
	defer nc.Close()
	return askNode(ctx, nc, addr)
}

var (
	infoCommand  = resp.AppendCommand(nil, "CLUSTER", "INFO")
	slotsCommand = resp.AppendCommand(nil, "CLUSTER", "SLOTS")
)

// askNode asks the node at addr for its map, and for the epoch that it knows. It reads nothing
// beyond the answers: the connection can serve a client next.
func askNode(ctx context.Context, nc net.Conn, addr string) (m *slotMap, epoch int64, err error) {
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() {
			err = context.Cause(ctx)
		}
	}()
	if _, err := nc.Write(slices.Concat(infoCommand, slotsCommand)); err != nil {
		return nil, 0, err
	}
	info, _, err := resp.ReadReply(nc, maxMap)
	if err != nil {
		return nil, 0, err
	}
	raw, head, err := resp.ReadReply(nc, maxMap)
	if err != nil {
		return nil, 0, err
	}
	if head.IsError() {
		return nil, 0, nodeError(lineOf(raw))
	}
	m, err = parseMap(raw, addr)
	if err != nil {
		return nil, 0, nodeError(err.Error())
	}
	return m, parseEpoch(info), nil
}

// parseEpoch reads the answer to CLUSTER INFO; 0 if it doesn't tell.
func parseEpoch(info []byte) int64 {
	for line := range strings.SplitSeq(string(info), "\r\n") {
		if value, ok := strings.CutPrefix(line, "cluster_current_epoch:"); ok {
			n, _ := resp.ParseInt([]byte(value))
			return n
		}
	}
	return 0
}
