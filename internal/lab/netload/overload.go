package netload

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/lab/netlab"
)

// CPUs that an overloaded mux's packets are sent by, and taken by.
const (
	sendingCPU   = 0
	receivingCPU = 1
)

// Overload has more datagrams come to a mux than it can take, until ctx ends, and counts them. The mux's interface loses
// packets as a NIC does, for a thread on another CPU takes them; it stays so.
func Overload(ctx context.Context, lab Lab, mux string, mix flood.Mix, sent *atomic.Int64) error {
	if runtime.NumCPU() < 2 {
		return fmt.Errorf("overload %s: needs two CPUs: one sends, and one is the mux", mux)
	}
	to, err := lab.NS(mux)
	if err != nil {
		return err
	}
	from, err := lab.NS(string(netlab.Router))
	if err != nil {
		return err
	}
	if _, err := to.ThreadXDP(netlab.Uplink, receivingCPU); err != nil {
		return err
	}
	link := flood.Link{}
	if link.To, err = to.MAC(netlab.Uplink); err != nil {
		return err
	}
	if link.From, err = from.MAC(mux); err != nil {
		return err
	}
	if link.Interface, err = from.Index(mux); err != nil {
		return err
	}
	g, err := flood.NewGenerator(link, mix)
	if err != nil {
		return err
	}
	err = from.Do(func() error {
		var set unix.CPUSet
		set.Set(sendingCPU)
		if err := unix.SchedSetaffinity(0, &set); err != nil { // of this thread, which ends with it
			return fmt.Errorf("send on CPU %d: %w", sendingCPU, err)
		}
		for ctx.Err() == nil {
			n, err := g.Burst()
			if err != nil {
				return err
			}
			sent.Add(int64(n))
		}
		return nil
	})
	return errors.Join(err, g.Close())
}
