package agent

import (
	"fmt"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
)

// setChainPeers makes the peers of the rules the only ones that may hand packets on to them.
func (d *Datapath) setChainPeers(rules map[model.HostBackendKey]model.HostBackend) error {
	rows := make(map[bpf.AgentChainPeer]uint8)
	for key, backend := range rules {
		for _, peer := range backend.ChainPeers {
			rows[bpf.AgentChainPeer{Rule: toRuleKey(key), Source: bpf.ToAddress(peer)}] = 1
		}
	}
	if err := bpf.WriteTable(d.objects.ChainPeers, rows); err != nil {
		return fmt.Errorf("set peers: %w", err)
	}
	return nil
}
