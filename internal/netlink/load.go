package netlink

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/safchain/ethtool"
	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/overload"
)

// userTick is the unit of /proc/stat: the kernel tells user space a hundred a second, whatever its own is.
const userTick = 10 * time.Millisecond

// Program counts the packets that the program of an interface has taken, and that the kernel may count as dropped.
type Program interface {
	// NotIP counts what was passed to the kernel as it is not IP.
	NotIP() (uint64, error)
	// Ended counts what the program dropped, or gave to user space.
	Ended() (uint64, error)
}

// Load follows the load of an interface.
type Load struct {
	name    string
	program Program
	index   int // of the interface that endsToo is said of
	endsToo bool
	drops   overload.Drops
}

// NewLoad follows the interface of the name, where the program is.
func NewLoad(name string, program Program) *Load {
	return &Load{name: name, program: program}
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
	unwanted, err := l.unwanted(link.Attrs().Index) // after what was dropped
	if err != nil {
		return s, err
	}
	if c := link.Attrs().Statistics; c != nil {
		s.Lost = l.drops.Lost(c.RxDropped, unwanted) + c.RxMissedErrors + c.RxFifoErrors + c.RxOverErrors
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

// dropCounters are the drivers that count what an XDP program drops as dropped on receipt, beside what they lost
// (receive_small_xdp in drivers/net/virtio_net.c, tun_xdp_act in drivers/net/tun.c).
var dropCounters = []string{"tun", "virtio_net"}

// unwanted counts what the interface may count as dropped though it was not lost.
func (l *Load) unwanted(index int) (uint64, error) {
	if index != l.index {
		tool, err := ethtool.NewEthtool()
		if err != nil {
			return 0, fmt.Errorf("ask for the driver of interface %s: %w", l.name, err)
		}
		defer tool.Close()
		driver, err := tool.DriverName(l.name)
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) { // loopback has none
			return 0, fmt.Errorf("ask for the driver of interface %s: %w", l.name, err)
		}
		l.index, l.endsToo = index, slices.Contains(dropCounters, driver)
	}
	count, err := l.program.NotIP()
	if err != nil || !l.endsToo {
		return count, err
	}
	ended, err := l.program.Ended()
	return count + ended, err
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
