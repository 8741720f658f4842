package mux

import (
	"fmt"
	"strings"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// Verdicts counts packets by what became of them. The names are those of enum verdict, without
// the prefix and in lower case: "forward_syn", "pass_no_endpoint", "drop_no_backend".
func (d *Datapath) Verdicts() (map[string]model.Counter, error) {
	return d.tables.VerdictNames.Read(d.tables.Verdicts)
}

// NotIP counts the packets that were passed to the kernel as they are not IP.
func (d *Datapath) NotIP() (uint64, error) {
	counter, err := abi.Counter(d.tables.Verdicts, uint32(bpf.MuxVerdictVERDICT_PASS_NOT_IP))
	if err != nil {
		return 0, fmt.Errorf("read counter of what is not ip: %w", err)
	}
	return counter.Packets, nil
}

// Ended counts the packets that the kernel was told to drop: those that were dropped, and those that user space sends
// on.
func (d *Datapath) Ended() (uint64, error) {
	all, err := d.Verdicts()
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

// EndpointCounters counts the packets forwarded for each live endpoint since it was made.
func (d *Datapath) EndpointCounters() (map[model.EndpointKey]model.Counter, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	counters := map[model.EndpointKey]model.Counter{}
	for key, live := range d.live {
		counter, err := abi.Counter(d.tables.EndpointCounts, live.row.Id)
		if err != nil {
			return nil, fmt.Errorf("read counter of endpoint %s: %w", key, err)
		}
		counters[key] = counter
	}
	return counters, nil
}
