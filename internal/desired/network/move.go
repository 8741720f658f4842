package network

import (
	"net/netip"

	"github.com/weirlb/weir/internal/model/vnet"
)

// Move is that an address of a network is on another host than before.
type Move struct {
	VNI     uint32
	Address netip.Addr
	Host    string // where it is now
}

// Moves are those from one version of a network to another one.
func Moves(was, is vnet.Network) (moves []Move) {
	if was.VNI != is.VNI {
		return nil
	}
	before := map[netip.Addr]string{}
	for _, w := range was.Workloads {
		for _, a := range w.Addresses {
			before[a] = w.Host
		}
	}
	for _, w := range is.Workloads {
		for _, a := range w.Addresses {
			if host, there := before[a]; there && host != w.Host {
				moves = append(moves, Move{is.VNI, a, w.Host})
			}
		}
	}
	return moves
}
