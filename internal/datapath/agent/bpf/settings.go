package bpf

import (
	"fmt"

	"github.com/weirlb/weir/internal/datapath/mss"
)

// ChangeSettings changes members of the table settings, and with them what follows from these. Concurrent calls may lose
// each other's changes.
func ChangeSettings(objects *AgentObjects, change func(*AgentAgentSettings)) error {
	var s AgentAgentSettings
	if err := objects.Settings.Get(&s); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	change(&s)
	s.SetMSS()
	if err := objects.Settings.Set(&s); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}

// SetMSS sets what workloads may announce: of a full segment, and the largest outer header that it may come in, the packet
// fits the uplink's MTU.
func (s *AgentAgentSettings) SetMSS() {
	room := int(s.Mtu) - s.outerHeader()
	s.Mss4, s.Mss6 = uint32(mss.For(room, false)), uint32(mss.For(room, true))
}

// outerHeader is the largest that tunnels may have, in bytes.
func (s *AgentAgentSettings) outerHeader() int {
	if s.Ipv4Tunnels == 0 {
		return int(AgentGueFormatOUTER_HEADER_MAX)
	}
	return int(AgentGueFormatOUTER_HEADER_IPV4)
}
