package mux

import (
	"fmt"
	"strings"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// Counters are those of packets by what became of them.
type Counters struct{ tables *bpf.Tables }

// Verdicts counts packets by what became of them. The names are those of enum verdict, without
// the prefix and in lower case: "forward_syn", "pass_no_endpoint", "drop_no_backend".
func (c *Counters) Verdicts() (map[string]model.Counter, error) {
	return c.tables.VerdictNames.Read(c.tables.Verdicts)
}

// NotIP counts the packets that were passed to the kernel as they are not IP.
func (c *Counters) NotIP() (uint64, error) {
	counter, err := abi.Counter(c.tables.Verdicts, uint32(bpf.MuxVerdictVERDICT_PASS_NOT_IP))
	if err != nil {
		return 0, fmt.Errorf("read counter of what is not ip: %w", err)
	}
	return counter.Packets, nil
}

// Ended counts the packets that the kernel was told to drop: those that were dropped, and those that user space sends
// on.
func (c *Counters) Ended() (uint64, error) {
	all, err := c.Verdicts()
	if err != nil {
		return 0, err
	}
	var sum uint64
	for name, counter := range all {
		if strings.HasPrefix(name, "drop_") || strings.HasPrefix(name, "punt_") {
			sum += counter.Packets
		}
	}
	return sum, nil
}

// LostDatagrams counts datagrams in fragments that were forgotten before their time, by why: for
// others of the same tenant, or another's.
func (c *Counters) LostDatagrams() (map[string]uint64, error) {
	return abi.LostDatagrams(c.tables.LostDatagrams)
}
