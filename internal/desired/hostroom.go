package desired

import (
	"iter"
	"maps"
	"math"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/bucket"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/snatport"
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
		need.Backends += len(vip.SNAT.Workloads) + snatport.HostCount(vip)
		need.Buckets += (int(model.RangeOf(math.MaxUint16)) + 1) / steering.BucketsPerRow
		for _, w := range vip.SNAT.Workloads {
			on[w.Host] = true
		}
	}
	return need, maps.Keys(on)
}

// KeptRoom is what tables of a VIP take of each of its hosts besides what its backends need: tables only grow, and keep the
// slots of backends that were removed for a while.
func KeptRoom(s State, vip model.VIP) (more steering.Room) {
	for _, e := range vip.Endpoints {
		table, there := s.Tables.Get(model.EndpointKey{VIP: vip.Address, Protocol: e.Protocol, Port: e.Port})
		if !there {
			continue
		}
		n := len(e.Backends)
		more.Buckets += (bucket.Size(len(table.Buckets), n) - bucket.Size(0, n)) / steering.BucketsPerRow
		present, kept := make(map[netip.AddrPort]bool, n), 0
		for _, b := range e.Backends {
			present[b.AddrPort()] = true
		}
		for _, r := range table.Rows {
			if !present[r.Backend] {
				kept++
			}
		}
		more.Backends += min(kept, model.MaxBackends-n)
	}
	return more
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

// keptRooms are KeptRoom of the VIPs that are to be in hardware: of each that keeps something, and by host.
type keptRooms struct {
	vips sorted.Map[string, keptRoom]
	on   sorted.Map[string, steering.Room]
}

type keptRoom struct {
	room  steering.Room
	hosts []string
}

func (k keptRooms) clone() keptRooms { return keptRooms{vips: k.vips.Clone(), on: k.on.Clone()} }

// replace has a VIP take what it keeps in the place of what it kept.
func (k *keptRooms) replace(name string, is keptRoom) {
	was, kept := k.vips.Get(name)
	for _, host := range was.hosts {
		if left := k.on.At(host).Minus(was.room); left == (steering.Room{}) {
			k.on.Delete(host)
		} else {
			k.on.Set(host, left)
		}
	}
	for _, host := range is.hosts {
		k.on.Set(host, k.on.At(host).Plus(is.room))
	}
	switch {
	case len(is.hosts) > 0:
		k.vips.Set(name, is)
	case kept:
		k.vips.Delete(name)
	}
}

// recountKept follows what a VIP keeps, whose tables were written or which was itself.
func recountKept(s *State, name string) {
	vip, is := s.VIPs.At(name), keptRoom{}
	if vip.InHardware() {
		if is.room = KeptRoom(*s, vip); is.room != (steering.Room{}) {
			_, hosts := Steering(vip)
			is.hosts = slices.Collect(hosts)
		}
	}
	s.keptRooms.replace(name, is)
}

// SteeringOn is what the VIPs that are to be in hardware need of a host, with what their tables keep.
func (s State) SteeringOn(host string) steering.Room {
	return s.hostRooms.At(host).Plus(s.keptRooms.on.At(host))
}
