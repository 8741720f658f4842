package multipath

import "github.com/weirlb/weir/internal/model"

// What the tables of a host have room for.
const (
	MaxEndpoints = 4096
	MaxPeers     = 1 << 18 // pairs of a backend and one that may hand packets on to it
)

// Room is what endpoints with multipath take of a host.
type Room struct{ Endpoints, Peers int }

// Plus is the room of both.
func (r Room) Plus(other Room) Room {
	return Room{r.Endpoints + other.Endpoints, r.Peers + other.Peers}
}

// Minus is the room of r without that of other.
func (r Room) Minus(other Room) Room {
	return Room{r.Endpoints - other.Endpoints, r.Peers - other.Peers}
}

// Of a host's tables managers give half: peers have more than one source where tunnels are of two families, and other
// endpoints have peers while their buckets move.
func (r Room) exceeds() bool { return r.Endpoints > MaxEndpoints/2 || r.Peers > MaxPeers/2 }

// IsLacking says whether a host has no room for it, and had for what it was before, or needs more of it now.
func (r Room) IsLacking(was Room) bool {
	return r.exceeds() && (r.Endpoints > was.Endpoints || r.Peers > was.Peers)
}

// RoomOf is what a VIP takes of each of its hosts.
func RoomOf(vip model.VIP) map[string]Room {
	on := map[string]Room{}
	for _, e := range vip.Endpoints {
		if !e.Multipath {
			continue
		}
		backends := map[string]int{}
		for _, b := range e.Backends {
			backends[b.Host]++
		}
		for host, n := range backends {
			on[host] = on[host].Plus(Room{Endpoints: 1, Peers: n * len(e.Backends)})
		}
	}
	return on
}
