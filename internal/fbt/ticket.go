package fbt

import (
	"encoding/binary"
	"net/netip"

	"github.com/dchest/siphash"
)

// Ticket is what a client's host shows in datagrams that go past the muxes: see bpf/overlay/ticket.h.
type Ticket struct {
	VNI         uint32
	Host        uint32 // number of the client's host
	Client, VIP netip.AddrPort
}

// MAC is SipHash-2-4 of the ticket under a key of the server's host: an address of the inner frame.
func (t Ticket) MAC(key Key) [6]byte {
	const domain = 0x54
	client, vip := t.Client.Addr().As16(), t.VIP.Addr().As16()
	b := []byte{domain, byte(t.VNI), byte(t.VNI >> 8), byte(t.VNI >> 16)}
	b = binary.LittleEndian.AppendUint32(b, t.Host)
	b = append(append(b, client[:]...), vip[:]...)
	b = binary.BigEndian.AppendUint16(b, t.Client.Port())
	b = binary.BigEndian.AppendUint16(b, t.VIP.Port())
	b = append(b, 0, 0, 0, 0)
	k0, k1 := binary.LittleEndian.Uint64(key.Secret[:8]), binary.LittleEndian.Uint64(key.Secret[8:])
	return [6]byte(binary.LittleEndian.AppendUint64(nil, siphash.Hash(k0, k1, b)))
}

// TicketByte is what stands behind the VNI of a packet with a ticket under the key.
func TicketByte(key Key) byte { return 0x5c | byte(key.ID%Keys) }
