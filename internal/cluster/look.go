package cluster

// How it is found out who serves which slot.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/resp"
)

// look has somebody ask who serves what, unless that was done just now. c.mu is held.
func (cl *Cluster) look(c *Conn) {
	if c.err != nil || !cl.mayLook() {
		return
	}
	c.running.Go(func() { // ends after lookPatience for each node, or with the Conn, which awaits it
		defer cl.doneLooking()
		wait := time.NewTimer(time.Until(cl.lastLook().Add(lookGap)))
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-c.ctx.Done():
			return
		}
		cl.Look(c.ctx, c.Dial)
	})
}

func (cl *Cluster) mayLook() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.looking {
		return false
	}
	cl.looking = true
	return true
}

func (cl *Cluster) doneLooking() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.looking = false
}

func (cl *Cluster) lastLook() time.Time {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	last := cl.looked
	cl.looked = time.Now()
	return last
}

// errBehind is of a node that knows less than others knew.
var errBehind = errors.New("it knows an older epoch of the cluster than is known here")

// Look asks the nodes, one after the other, who serves what, until one knows. The error is the last one's.
func (cl *Cluster) Look(ctx context.Context, dial Dialer) error {
	err := errors.New("no node is known")
	for _, addr := range cl.known() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		m, epoch, askErr := askAt(ctx, dial, addr)
		if askErr == nil && !cl.learn(m, epoch, time.Now()) {
			askErr = errBehind
		}
		if askErr == nil {
			return nil
		}
		err = fmt.Errorf("%s: %w", addr, askErr)
	}
	return err
}

// known is all nodes: masters, replicas, seeds; each in any order.
func (cl *Cluster) known() (addrs []string) {
	addrs = cl.doors()
	add := func(more []string) {
		for _, addr := range more {
			if !slices.Contains(addrs, addr) {
				addrs = append(addrs, addr)
			}
		}
	}
	if m := cl.slots.Load(); m != nil {
		add(m.replicas)
	}
	add(cl.seeds)
	return addrs
}

// Follow keeps up with the cluster until ctx ends.
func (cl *Cluster) Follow(ctx context.Context, dial Dialer, report func(err error)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if cl.mayLook() {
			cl.lastLook()
			report(cl.Look(ctx, dial))
			cl.doneLooking()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// nodeError is what a node says to a question.
type nodeError string

func (e nodeError) Error() string { return string(e) }

func isNodeError(err error) bool {
	var says nodeError
	return errors.As(err, &says)
}

func askAt(ctx context.Context, dial Dialer, addr string) (*slotMap, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	nc, err := dial(ctx, addr, nil)
	if err != nil {
		return nil, 0, err
	}
	defer nc.Close()
	stop := context.AfterFunc(ctx, func() { nc.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return askNode(nc, addr)
}

var questions = resp.AppendCommand(resp.AppendCommand(nil, "CLUSTER", "INFO"), "CLUSTER", "SLOTS")

// maxMap bounds what a node says of the cluster, bytes.
const maxMap = 64 << 20

// askNode asks the node at addr who serves what, and for the epoch that it knows. It reads nothing beyond the answers: the connection may serve
// a client next.
func askNode(nc io.ReadWriter, addr string) (m *slotMap, epoch int64, err error) {
	if _, err := nc.Write(questions); err != nil {
		return nil, 0, err
	}
	info, _, err := resp.ReadReply(nc, maxMap)
	if err != nil {
		return nil, 0, err
	}
	raw, _, err := resp.ReadReply(nc, maxMap)
	if err != nil {
		return nil, 0, err
	}
	if isError(raw) {
		return nil, 0, nodeError(errorLine(raw))
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
