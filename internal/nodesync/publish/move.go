package publish

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/store"
)

// clientMove is an address of a virtual network that is on another host than before.
type clientMove struct {
	vni     uint32
	address netip.Addr
	host    string // where it is now
}

// newClientMoves computes which clients went to another host from old to s.
func newClientMoves(old, s *store.State, delta store.Delta) (moves []clientMove) {
	for name := range delta.Networks {
		was, had := old.Networks.Get(name)
		is, has := s.Networks.Get(name)
		if !had || !has || was.VNI != is.VNI {
			continue
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
					moves = append(moves, clientMove{is.VNI, a, w.Host})
				}
			}
		}
	}
	return moves
}

// clientMoves are those of the last moveTime, at most vnet.MaxMoves: the hosts of these clients' servers hear of them, and
// send there what a client waits for without a word. Where one is not heard of, its next packet tells the same.
type clientMoves []timedMove

type timedMove struct {
	clientMove
	at time.Time
}

const moveTime = 30 * time.Second

func (m *clientMoves) add(moves []clientMove, now time.Time) {
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
		number := s.Networks.Numbers.Of(m.host)
		if _, known := n.networks.sent[m.vni]; number == 0 || !known {
			continue
		}
		if last := len(told) - 1; last >= 0 && told[last].VNI == m.vni && told[last].Host == number {
			told[last].Addresses = append(told[last].Addresses, m.address)
			continue
		}
		told = append(told, vnet.Move{VNI: m.vni, Addresses: []netip.Addr{m.address}, Host: number})
	}
	return told
}
