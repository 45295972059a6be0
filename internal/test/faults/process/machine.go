//go:build linux

package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Machine is a network namespace with one link to this machine. Without the link it is like a
// machine without power: no peer is told. It needs root and iproute2.
type Machine struct {
	Host string // this side's address on the link
	Far  string // the machine's address on it

	name string
}

var machines atomic.Int64

// NewMachine makes a Machine. Close it.
func NewMachine() (*Machine, error) {
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		return nil, errors.New(
			"a vanishing machine is a network namespace: it needs root and iproute2's ip")
	}
	// 198.18.0.0/15 is for tests of networks; its first half is internal/test/virtualnet's. A link
	// takes four addresses.
	number := (int64(os.Getpid()) + machines.Add(1)*257) % (1 << 14)
	net := fmt.Sprintf("198.19.%d.", number>>6)
	last := int(number & 63 * 4)
	m := &Machine{Host: net + fmt.Sprint(last+1), Far: net + fmt.Sprint(last+2),
		name: fmt.Sprintf("soak%d", number)}
	for _, args := range [][]string{
		{"netns", "add", m.name},
		{"link", "add", m.name, "type", "veth", "peer", "name", "eth0", "netns", m.name},
		{"addr", "add", m.Host + "/30", "dev", m.name},
		{"link", "set", m.name, "up"},
		{"-n", m.name, "addr", "add", m.Far + "/30", "dev", "eth0"},
		{"-n", m.name, "link", "set", "eth0", "up"},
	} {
		if err := ip(args...); err != nil {
			m.Close()
			return nil, err
		}
	}
	return m, nil
}

// Link takes the machine's link up or down.
func (m *Machine) Link(up bool) error {
	return ip("-n", m.name, "link", "set", "eth0", map[bool]string{true: "up", false: "down"}[up])
}

// Command is a program that runs on the machine.
func (m *Machine) Command(path string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", m.name, path}, args...)...)
}

// Do runs something in this process whose new sockets are the machine's.
func (m *Machine) Do(do func() error) error {
	return onThread(func() error {
		file, err := os.Open("/var/run/netns/" + m.name)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return do()
	})
}

// Close removes the machine. Its programs must have ended.
func (m *Machine) Close() { ip("netns", "del", m.name) }

func ip(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %q: %w: %s", args, err, bytes.TrimSpace(out))
	}
	return nil
}
