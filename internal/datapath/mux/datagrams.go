package mux

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// FragmentKey names the datagram that a fragment is of.
type FragmentKey struct {
	Source, Destination netip.Addr
	Protocol            uint8
	ID                  uint32
}

// Times of datagrams in fragments.
const (
	datagramLife = uint32(bpf.MuxDatagramLayoutDATAGRAM_LIFE) // ticks
)

// FragmentKnown says whether the first fragment of the datagram came: as datagram_recall() does.
func (s *SlowPath) FragmentKnown(k FragmentKey) bool {
	pool, err := s.pool.Settings()
	if err != nil {
		return false
	}
	hash := pool.HashKey.Sum64(k.common())
	var set bpf.MuxDatagramSet
	if s.tables.Fragments.Lookup(uint32(hash%uint64(s.tables.Fragments.MaxEntries())), &set) != nil {
		return false
	}
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now) != nil {
		return false
	}
	return holdsDatagram(&set, hash, uint32(now.Nano()/bpf.DatagramTick))
}

// holdsDatagram reads what packets may be writing: of half a cell the check is wrong.
func holdsDatagram(s *bpf.MuxDatagramSet, hash uint64, now uint32) bool {
	for _, cell := range s.Cells {
		if cell.Check^cell.Words[0]^cell.Words[1] == hash && cell.Seen-now+datagramLife <= 2*datagramLife {
			return true
		}
	}
	return false
}

// common is what all fragments of the datagram have, with the id in the place of ports: as on the wire, where IPv4's
// stands in the first two bytes.
func (k FragmentKey) common() model.Flow {
	id := make([]byte, 4)
	if k.Source.Is4() {
		binary.BigEndian.PutUint16(id, uint16(k.ID))
	} else {
		binary.BigEndian.PutUint32(id, k.ID)
	}
	return model.Flow{
		Protocol:    model.Protocol(k.Protocol),
		Source:      netip.AddrPortFrom(k.Source, binary.BigEndian.Uint16(id)),
		Destination: netip.AddrPortFrom(k.Destination, binary.BigEndian.Uint16(id[2:])),
	}
}
