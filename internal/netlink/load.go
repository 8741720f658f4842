package netlink

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/overload"
)

// userTick is the unit of /proc/stat: the kernel tells user space a hundred a second, whatever its own is.
const userTick = 10 * time.Millisecond

// Load follows the load of an interface.
type Load struct {
	name  string
	notIP func() (uint64, error)
	drops overload.Drops
}

// NewLoad follows the interface of the name. notIP counts the packets that its program has passed to the kernel as they are
// not IP.
func NewLoad(name string, notIP func() (uint64, error)) *Load {
	return &Load{name: name, notIP: notIP}
}

// Sample tells how many packets came to the interface, how many of them it had no room or no time for, and how
// the CPUs spend their time.
func (l *Load) Sample() (s overload.Sample, err error) {
	requests, err := vnl.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return s, fmt.Errorf("open netlink socket: %w", err)
	}
	defer requests.Close()
	link, err := requests.LinkByName(l.name)
	if err != nil {
		return s, fmt.Errorf("read counters of interface %s: %w", l.name, err)
	}
	notIP, err := l.notIP() // after what was dropped
	if err != nil {
		return s, err
	}
	if c := link.Attrs().Statistics; c != nil {
		s.Lost = l.drops.Lost(c.RxDropped, notIP) + c.RxMissedErrors + c.RxFifoErrors + c.RxOverErrors
		s.Received = c.RxPackets + s.Lost
	}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return s, fmt.Errorf("read how CPUs spend their time: %w", err)
	}
	s.CPUs, err = parseCPUs(bytes.NewReader(text))
	s.At = time.Now()
	return s, err
}

// parseCPUs reads the lines of single CPUs of /proc/stat (proc_stat(5)).
func parseCPUs(from io.Reader) (all []overload.CPU, err error) {
	const softirq, steal = 7, 8 // the fields behind them are parts of others
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) <= steal || !strings.HasPrefix(fields[0], "cpu") || fields[0] == "cpu" {
			continue
		}
		var cpu overload.CPU
		for i := 1; i <= steal; i++ {
			ticks, err := strconv.ParseInt(fields[i], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("read how CPUs spend their time: %w", err)
			}
			cpu.All += time.Duration(ticks) * userTick
			if i == softirq {
				cpu.SoftIRQ = time.Duration(ticks) * userTick
			}
		}
		all = append(all, cpu)
	}
	return all, lines.Err()
}
