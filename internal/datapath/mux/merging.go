package mux

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/safchain/ethtool"
)

// merging offloads hand the stack several segments as one buffer. Generic XDP runs behind them; the driver's runs before.
var merging = []string{"rx-gro", "rx-gro-hw", "rx-gro-list", "rx-udp-gro-forwarding", "rx-lro"}

// stopMerging switches merging offloads off: a merged buffer is longer than the MTU, and would be dropped (drop_merged).
func (d *Datapath) stopMerging(iface string) {
	changed, err := switchOff(iface, merging)
	if err != nil {
		d.log.Error("generic XDP drops what the kernel merges: switch it off by ethtool -K", "interface", iface, "err", err)
		return
	}
	if len(changed) > 0 {
		d.log.Warn("switched off "+strings.Join(changed, ", ")+": generic XDP drops what they merge", "interface", iface)
	}
}

// switchOff switches off those offloads of the interface that are on, and tells which.
func switchOff(iface string, offloads []string) ([]string, error) {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return nil, fmt.Errorf("open ethtool: %w", err)
	}
	defer tool.Close()
	features, err := tool.Features(iface)
	if err != nil {
		return nil, fmt.Errorf("read the offloads of %s: %w", iface, err)
	}
	off := map[string]bool{}
	for _, name := range offloads {
		if features[name] {
			off[name] = false
		}
	}
	if len(off) == 0 {
		return nil, nil
	}
	if err := tool.Change(iface, off); err != nil {
		return nil, fmt.Errorf("switch off offloads of %s: %w", iface, err)
	}
	return slices.Sorted(maps.Keys(off)), nil
}
