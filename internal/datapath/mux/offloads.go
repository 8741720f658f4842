package mux

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/safchain/ethtool"
)

// merging offloads hand the stack several segments as one buffer. Generic XDP runs behind them; the driver's runs
// before.
var merging = []string{"rx-gro", "rx-gro-hw", "rx-gro-list", "rx-udp-gro-forwarding", "rx-lro"}

// untagging offloads take VLAN tags out of frames. The kernel keeps them beside the frame, which generic XDP leaves so;
// what native XDP sends has lost them.
var untagging = []string{"rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"}

// switchOffloads switches off what the program can't work behind in its mode.
func (d *Datapath) switchOffloads(iface string, mode Mode) {
	offloads, effect := untagging, "native XDP sends frames without the VLAN tags that they take out"
	if mode == Generic {
		offloads, effect = merging, "generic XDP drops what they merge"
	}
	changed, err := switchOff(iface, offloads)
	if err != nil {
		d.log.Error("offloads that should be off are on: "+effect+"; see ethtool -k", "interface", iface, "err", err)
		return
	}
	if len(changed) > 0 {
		d.log.Warn("switched off "+strings.Join(changed, ", ")+": "+effect, "interface", iface)
	}
}

// switchOff switches off those offloads of the interface that are on, and tells which.
func switchOff(iface string, offloads []string) ([]string, error) {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return nil, fmt.Errorf("open ethtool: %w", err)
	}
	defer tool.Close()
	on, err := thoseOn(tool, iface, offloads)
	if err != nil || len(on) == 0 {
		return nil, err
	}
	if err := tool.Change(iface, on); err != nil {
		return nil, fmt.Errorf("switch off offloads of %s: %w", iface, err)
	}
	still, err := thoseOn(tool, iface, offloads)
	if err == nil && len(still) > 0 {
		err = fmt.Errorf("switch off offloads of %s: the driver keeps %s on", iface, strings.Join(slices.Sorted(maps.Keys(still)), ", "))
	}
	return slices.Sorted(maps.Keys(on)), err
}

// thoseOn are the offloads of these that are on, as a change that switches them off.
func thoseOn(tool *ethtool.Ethtool, iface string, offloads []string) (map[string]bool, error) {
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
	return off, nil
}
