package agent

import (
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/abi"
)

func toAddress(a netip.Addr) agentAddress { return agentAddress{Words: abi.Words(a)} }

func fromAddress(a agentAddress) netip.Addr { return abi.Address(a.Words) }

func fromAddrPort(a agentAddress, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(fromAddress(a), abi.Port(port))
}
