package bpf

import (
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/abi"
)

// ToAddress is the address as tables have it.
func ToAddress(a netip.Addr) AgentAddress { return AgentAddress{Words: abi.Words(a)} }

// FromAddress is what ToAddress wrote.
func FromAddress(a AgentAddress) netip.Addr { return abi.Address(a.Words) }

// FromAddrPort is an address and a port as tables have them.
func FromAddrPort(a AgentAddress, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(FromAddress(a), abi.Port(port))
}

// mappedBits are those that every IPv4 address has before its own.
const mappedBits = 96

// ToPrefix is the prefix as the key of a trie.
func ToPrefix(p netip.Prefix) AgentPrefix {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += mappedBits
	}
	return AgentPrefix{Bits: uint32(bits), Address: ToAddress(p.Addr())}
}

// FromPrefix is what ToPrefix wrote.
func FromPrefix(p AgentPrefix) netip.Prefix {
	address, bits := FromAddress(p.Address), int(p.Bits)
	if address.Is4() {
		bits -= mappedBits
	}
	return netip.PrefixFrom(address, bits)
}
