package abi

import (
	"fmt"

	"github.com/cilium/ebpf"
)

// LostDatagrams reads a table of enum datagram_loss: how many datagrams were forgotten before their time, by whose took
// their place.
func LostDatagrams(table *ebpf.Map) (map[string]uint64, error) {
	lost := make(map[string]uint64)
	for loss, to := range []string{"same_tenant", "another_tenant"} {
		counter, err := Counter(table, uint32(loss))
		if err != nil {
			return nil, fmt.Errorf("read datagrams that were lost: %w", err)
		}
		lost[to] = counter.Packets
	}
	return lost, nil
}
