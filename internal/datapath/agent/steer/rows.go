package steer

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
)

// rows are what the tables hold of some VIPs; sources also those of all VIPs, as far as these have them.
type rows struct {
	sources   map[bpf.AgentSteerSource]uint32
	endpoints map[bpf.AgentSteerKey]bpf.AgentSteerEndpoint
	buckets   map[bpf.AgentSteerBucketKey]bpf.AgentSteerBucketRow
	backends  map[bpf.AgentSteerBackendKey]bpf.AgentSteerBackend
	locals    map[uint32]bpf.AgentSteerLocals
}

func newRows() rows {
	return rows{
		map[bpf.AgentSteerSource]uint32{},
		map[bpf.AgentSteerKey]bpf.AgentSteerEndpoint{},
		map[bpf.AgentSteerBucketKey]bpf.AgentSteerBucketRow{},
		map[bpf.AgentSteerBackendKey]bpf.AgentSteerBackend{},
		map[uint32]bpf.AgentSteerLocals{},
	}
}

// addSources adds who may send packets to a VIP.
func (r rows) addSources(vip steering.VIP) {
	for source, isSwitch := range vip.Sources() {
		role := bpf.AgentSteerRoleSTEER_HOST
		switch {
		case isSwitch && vip.ByHost:
			role = bpf.AgentSteerRoleSTEER_SWITCH_BY_HOST
		case isSwitch:
			role = bpf.AgentSteerRoleSTEER_SWITCH
		}
		r.sources[bpf.AgentSteerSource{Vip: bpf.ToAddress(vip.Address), Source: bpf.ToAddress(source)}] = uint32(role)
	}
}

// addVIPs adds rows of VIPs, whose endpoints have numbers. Locals are what the host chooses among, of those by host.
func (r rows) addVIPs(vips iter.Seq[steering.VIP], numbers map[model.EndpointKey]uint32, here func(tunnel netip.Addr) bool) {
	for vip := range vips {
		r.addSources(vip)
		r.addVIP(vip)
		for _, e := range vip.Endpoints {
			r.addEndpoint(e, numbers[e.Key])
			if vip.ByHost && e.Key != steering.Ports(vip.Address) {
				r.addLocals(e, numbers[e.Key], e.Locals(here))
			}
		}
	}
}

// addRoles adds what outer sources are to any VIP, whose destination can't be read.
func (r rows) addRoles(roles iter.Seq2[netip.Addr, bpf.AgentSteerRole]) {
	for source, role := range roles {
		if role != 0 {
			r.sources[bpf.AgentSteerSource{Source: bpf.ToAddress(source)}] = uint32(role)
		}
	}
}

// leadsElsewhere says whether a slot of the endpoint has led to another tunnel.
func (r rows) leadsElsewhere(e steering.Endpoint, number uint32) bool {
	return slices.ContainsFunc(e.Backends, func(b steering.Backend) bool {
		row, had := r.backends[bpf.AgentSteerBackendKey{Endpoint: number, Slot: uint32(b.Slot)}]
		return had && row.Tunnel != bpf.ToAddress(b.Tunnel)
	})
}

// addVIP adds the row of a VIP itself.
func (r rows) addVIP(vip steering.VIP) {
	row := bpf.AgentSteerEndpoint{Flags: uint32(bpf.AgentSteerFlagSTEER_EMPTY)}
	if vip.Ping {
		row.Flags |= uint32(bpf.AgentSteerFlagSTEER_PING)
	}
	r.endpoints[bpf.AgentSteerKey{Vip: bpf.ToAddress(vip.Address)}] = row
}

// addEndpoint adds an endpoint, which has a number on this host.
func (r rows) addEndpoint(e steering.Endpoint, number uint32) {
	key := toKey(e.Key)
	ping := r.endpoints[key].Flags & uint32(bpf.AgentSteerFlagSTEER_PING) // if it is the VIP's own row
	r.endpoints[key] = bpf.AgentSteerEndpoint{Number: number, BucketMask: uint32(max(len(e.Buckets), 1) - 1), Flags: flagsOf(e) | ping}
	fresh := make(map[model.Slot]bool, len(e.Backends))
	for first := range e.Rows() {
		key := bpf.AgentSteerBucketKey{Endpoint: number, Row: uint32(first / steering.BucketsPerRow)}
		row := bpf.AgentSteerBucketRow{Key: key}
		for i := range min(len(row.Buckets), len(e.Buckets)-first) {
			slot, previous := e.Choice(uint32(first + i))
			row.Buckets[i] = uint32(slot) | uint32(previous)<<bpf.AgentSteerBucketLayoutSTEER_PREVIOUS_SHIFT
			fresh[slot] = true
		}
		r.buckets[key] = row
	}
	for _, b := range e.Backends {
		row := bpf.AgentSteerBackend{Tunnel: bpf.ToAddress(b.Tunnel)}
		switch {
		case b.Down:
			row.Flags = uint32(bpf.AgentSteerBackendFlagSTEER_BACKEND_DOWN)
		case fresh[b.Slot]:
			row.Flags = uint32(bpf.AgentSteerBackendFlagSTEER_BACKEND_NEW)
		}
		r.backends[bpf.AgentSteerBackendKey{Endpoint: number, Slot: uint32(b.Slot)}] = row
	}
}

// addLocals has the host choose among these slots what has come to any of its backends of an endpoint.
func (r rows) addLocals(e steering.Endpoint, number uint32, slots []model.Slot) {
	key := toKey(e.Key)
	row := r.endpoints[key]
	row.Flags |= uint32(bpf.AgentSteerFlagSTEER_BY_HOST)
	r.endpoints[key] = row
	locals := bpf.AgentSteerLocals{Count: uint32(len(slots))}
	for i, slot := range slots {
		locals.Slots[i] = uint16(slot)
	}
	r.locals[number] = locals
}

func flagsOf(e steering.Endpoint) uint32 {
	var flags bpf.AgentSteerFlag
	for flag, set := range map[bpf.AgentSteerFlag]bool{
		bpf.AgentSteerFlagSTEER_COOKIES:         e.Cookies == model.CookiesOn || e.Cookies == model.CookiesSettling,
		bpf.AgentSteerFlagSTEER_COOKIES_SETTLED: e.Cookies == model.CookiesOn,
		bpf.AgentSteerFlagSTEER_AFFINITY:        e.Affinity,
		bpf.AgentSteerFlagSTEER_UDP_LOCAL:       e.LocalUDP,
		bpf.AgentSteerFlagSTEER_EMPTY:           len(e.Buckets) == 0,
	} {
		if set {
			flags |= flag
		}
	}
	return uint32(flags)
}

func toKey(key model.EndpointKey) bpf.AgentSteerKey {
	return bpf.AgentSteerKey{Vip: bpf.ToAddress(key.VIP), Port: abi.Port(key.Port), Protocol: uint8(key.Protocol)}
}

func fromKey(key bpf.AgentSteerKey) model.EndpointKey {
	return model.EndpointKey{VIP: bpf.FromAddress(key.Vip), Protocol: model.Protocol(key.Protocol), Port: abi.Port(key.Port)}
}
