package publish

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/store"
)

// newClientMoves computes which clients went to another host from old to s.
func newClientMoves(old, s *store.State, delta store.Delta) (moves []network.Move) {
	for name := range delta.Networks {
		was, _ := old.Networks.Get(name)
		is, _ := s.Networks.Get(name)
		moves = append(moves, network.Moves(was, is)...)
	}
	return moves
}

// clientMoves are those of the last moveTime, at most vnet.MaxMoves: the hosts of these clients' servers hear of them, and
// send there what a client waits for without a word. Where one is not heard of, its next packet tells the same.
type clientMoves []timedMove

type timedMove struct {
	network.Move
	at time.Time
}

const moveTime = 30 * time.Second

func (m *clientMoves) add(moves []network.Move, now time.Time) {
	for _, move := range moves[:min(len(moves), vnet.MaxMoves)] {
		*m = append(*m, timedMove{move, now})
	}
	recent := m.recent(now)
	*m = slices.Clone(recent[max(0, len(recent)-vnet.MaxMoves):])
}

// recent are those that are not too old, the oldest first. It is read only.
func (m *clientMoves) recent(now time.Time) clientMoves {
	first := slices.IndexFunc(*m, func(move timedMove) bool { return now.Sub(move.at) < moveTime })
	if first < 0 {
		return nil
	}
	return (*m)[first:]
}

// moved are the moves of clients in networks that the host knows, each to a host that has a number.
func (n *sentNetworks) moved(s *store.State, moves clientMoves) (told []vnet.Move) {
	for _, m := range moves {
		number := s.Networks.Numbers.Of(m.Host)
		if _, known := n.networks.sent[m.VNI]; number != 0 && known {
			told = append(told, vnet.Move{VNI: m.VNI, Addresses: []netip.Addr{m.Address}, Host: number})
		}
	}
	return told
}
