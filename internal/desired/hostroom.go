package desired

import (
	"iter"
	"maps"
	"math"
	"net/netip"

	"github.com/weirlb/weir/internal/bucket"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/sorted"
)

// Steering is what a VIP needs of each of its hosts while switches have it: as much as it may come to, with two addresses of
// each node, and all ranges of ports.
func Steering(vip model.VIP) (need steering.Room, hosts iter.Seq[string]) {
	on, tunnels := map[string]bool{}, map[netip.Addr]bool{}
	need.Endpoints = 1
	for _, e := range vip.Endpoints {
		need.Endpoints++
		need.Backends += len(e.Backends)
		need.Buckets += bucket.Size(0, len(e.Backends)) / steering.BucketsPerRow
		for _, b := range e.Backends {
			on[b.Host], tunnels[b.TunnelAddress()] = true, true
		}
	}
	switches := hardware.MaxSwitches
	if vip.InHardware() {
		switches = len(hardware.Named(vip))
	}
	need.Sources = len(tunnels) + 2*len(on) + 2*switches
	if vip.SNAT != nil {
		need.Backends += len(vip.SNAT.Workloads)
		need.Buckets += (int(model.RangeOf(math.MaxUint16)) + 1) / steering.BucketsPerRow
		for _, w := range vip.SNAT.Workloads {
			on[w.Host] = true
		}
	}
	return need, maps.Keys(on)
}

// hostRooms say by host what the VIPs that are to be in hardware need of it.
type hostRooms struct {
	sorted.Map[string, steering.Room]
}

// ReplaceVIP has vip take its room in the place of old.
func (r *hostRooms) ReplaceVIP(old, vip model.VIP) {
	r.count(old, steering.Room.Minus)
	r.count(vip, steering.Room.Plus)
}

func (r *hostRooms) count(vip model.VIP, with func(steering.Room, steering.Room) steering.Room) {
	if !vip.InHardware() {
		return
	}
	need, hosts := Steering(vip)
	for host := range hosts {
		if is := with(r.At(host), need); is == (steering.Room{}) {
			r.Delete(host)
		} else {
			r.Set(host, is)
		}
	}
}

// SteeringOn is what the VIPs that are to be in hardware need of a host.
func (s State) SteeringOn(host string) steering.Room { return s.hostRooms.At(host) }
