package agent

import (
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
)

func toAddress(a netip.Addr) bpf.AgentAddress { return bpf.AgentAddress{Words: abi.Words(a)} }

func fromAddress(a bpf.AgentAddress) netip.Addr { return abi.Address(a.Words) }

func fromAddrPort(a bpf.AgentAddress, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(fromAddress(a), abi.Port(port))
}
