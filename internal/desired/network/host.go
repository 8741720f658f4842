package network

import (
	"cmp"
	"hash/fnv"
	"iter"
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/sorted"
)

// Number is that of a host in virtual networks, which FBTs and sessions name.
type Number struct {
	Number uint32 `json:"number"` // 1 to vnet.MaxHosts
	// Released is since when the host has to do with no network, by the clock of the leader of then; zero: it has.
	Released time.Time `json:"released,omitzero"`
}

// IsReleased says whether the host has to do with no network.
func (n Number) IsReleased() bool { return !n.Released.IsZero() }

// Numbers are those of hosts.
type Numbers struct {
	of  sorted.Map[string, Number]
	who sorted.Map[uint32, string]
}

func (n Numbers) clone() Numbers { return Numbers{n.of.Clone(), n.who.Clone()} }

// Of is the number of a host; 0: it has none.
func (n Numbers) Of(host string) uint32 { return n.of.At(host).Number }

// HostOf is the host that has a number; empty: none has.
func (n Numbers) HostOf(number uint32) string { return n.who.At(number) }

// All are the numbers that hosts have, by host.
func (n Numbers) All() iter.Seq2[string, Number] { return n.of.All() }

// Hosts are those that have numbers, in order.
func (n Numbers) Hosts() iter.Seq[string] { return n.of.Keys() }

// Put gives a host a number, or notes that its number is released.
func (n *Numbers) Put(host string, number Number) {
	n.Remove(host)
	n.of.Set(host, number)
	n.who.Set(number.Number, host)
}

// Remove frees the number of a host.
func (n *Numbers) Remove(host string) {
	if was, had := n.of.Get(host); had && n.who.At(was.Number) == host {
		n.who.Delete(was.Number)
	}
	n.of.Delete(host)
}

// NumberQuarantine is how long a number is nobody's after its host has to do with no network: no session of a server
// that names it lives so long, as answers to a host that is unknown go nowhere.
const NumberQuarantine = 25 * time.Hour

// Allocate returns what is to change of numbers, so that the hosts have one each, and others none; what is zero is freed.
// Those that get none, as all are given out, or as nothing may be given out, are without. Hosts are in order.
func (n Numbers) Allocate(hosts iter.Seq[string], mayGive bool, now time.Time) (change map[string]Number, without []string) {
	change = map[string]Number{}
	has, given := map[string]bool{}, map[uint32]bool{}
	for host := range hosts {
		has[host] = true
		number, numbered := n.of.Get(host)
		switch {
		case numbered && number.IsReleased():
			change[host] = Number{Number: number.Number}
		case numbered:
		case !mayGive:
			without = append(without, host)
		default:
			if n.who.Len()+len(given) >= vnet.MaxHosts {
				without = append(without, host)
				continue
			}
			next := preferred(host)
			for n.who.Has(next) || given[next] {
				next = next%vnet.MaxHosts + 1
			}
			change[host], given[next] = Number{Number: next}, true
		}
	}
	for host, number := range n.All() {
		switch {
		case has[host]:
		case !number.IsReleased():
			change[host] = Number{number.Number, now.UTC().Truncate(time.Second)}
		case now.Sub(number.Released) > NumberQuarantine:
			change[host] = Number{}
		}
	}
	return change, without
}

// preferred is the number that a host gets if it is free. It follows from the name, so that a host that got its number after
// a backup most likely gets the same one when that is restored, while sessions still name it.
func preferred(host string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(host)) // never fails
	return h.Sum32()%vnet.MaxHosts + 1
}

// VTEPName is what a host without an agent is called, by its VTEP: no node has such a name.
func VTEPName(vtep netip.Addr) string { return vtep.String() }

// VTEPOf is the VTEP of a host without an agent, if name is of one.
func VTEPOf(name string) (vtep netip.Addr, is bool) {
	vtep, err := netip.ParseAddr(name)
	return vtep, err == nil
}

// hostsOf are the hosts of a network's workloads, some several times, and those without an agent.
func hostsOf(n vnet.Network) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, w := range n.Workloads {
			if !yield(w.Host) {
				return
			}
		}
		for _, vtep := range n.WithoutAgent {
			if !yield(VTEPName(vtep)) {
				return
			}
		}
	}
}

// place is a network that has workloads on a host.
type place struct{ host, network string }

// Compare orders places by host.
func (p place) Compare(other place) int {
	return cmp.Or(cmp.Compare(p.host, other.host), cmp.Compare(p.network, other.network))
}

var _ = sorted.Register(place.Compare)

// member is a host that a network has workloads on.
type member struct{ network, host string }

// Compare orders members by network.
func (m member) Compare(other member) int {
	return cmp.Or(cmp.Compare(m.network, other.network), cmp.Compare(m.host, other.host))
}

var _ = sorted.Register(member.Compare)

// places say which networks have workloads on which hosts, both ways.
type places struct {
	networks sorted.Map[place, none]
	hosts    sorted.Map[member, none]
}

func (p places) clone() places { return places{p.networks.Clone(), p.hosts.Clone()} }

func (p *places) put(n vnet.Network) {
	for host := range hostsOf(n) {
		if at := (place{host, n.Name}); !p.networks.Has(at) {
			p.networks.Set(at, none{})
			p.hosts.Set(member{n.Name, host}, none{})
		}
	}
}

func (p *places) remove(n vnet.Network) {
	for host := range hostsOf(n) {
		p.networks.Delete(place{host, n.Name})
		p.hosts.Delete(member{n.Name, host})
	}
}

// NetworksOn are the networks that have workloads on a host, by name.
func (s Set) NetworksOn(host string) iter.Seq[vnet.Network] {
	return func(yield func(vnet.Network) bool) {
		for p := range s.places.networks.From(place{host: host}) {
			if p.host != host || !yield(s.networks.At(p.network)) {
				return
			}
		}
	}
}

// HostsIn are the hosts that a network has workloads on, with and without an agent, in order.
func (s Set) HostsIn(network string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for m := range s.places.hosts.From(member{network: network}) {
			if m.network != network || !yield(m.host) {
				return
			}
		}
	}
}

// Rows are how many attachments VIPs have, in force or not, and how many pairs there are of a network and a host with
// workloads of it.
func Rows(s Set) (attachments, places int) { return s.wanted.Len(), s.places.networks.Len() }

// WithAttachments are the names of the VIPs that have attachments, in force or not.
func (s Set) WithAttachments() iter.Seq[string] { return s.tenants.Keys() }
