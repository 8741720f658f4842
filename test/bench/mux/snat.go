package main

import (
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/model"
)

// snatVIPs are those that workloads leave as while packets are measured.
var snatVIPs = map[family]string{v4: "203.0.113.30", v6: "2001:db8:1::30"}

const ranges = 1 << 16 / model.RangePorts // of a VIP

// workloads have all ports of the VIPs, behind the tunnels of the backends.
func workloads() (all []model.MuxSNAT) {
	for of, text := range snatVIPs {
		vip := netip.MustParseAddr(text)
		for i := range backends {
			s := model.MuxSNAT{Key: model.SNATKey{VIP: vip}, Tunnel: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}
			s.Key.Address = s.Tunnel
			if of == v6 {
				s.Tunnel = netip.AddrFrom16([16]byte{0: 0xfd, 1: 1, 15: byte(i)})
				s.Key.Address = s.Tunnel
			}
			for r := i; r < ranges; r += backends {
				s.Ranges = append(s.Ranges, model.Range(r))
			}
			all = append(all, s)
		}
	}
	return all
}

// giveRanges gives workloads their ranges, or takes them away.
func giveRanges(d *mux.Datapath, up bool) error {
	u := endpoint.Update{SNAT: workloads()}
	if !up {
		u = endpoint.Update{}
		for _, s := range workloads() {
			u.SNATRemoved = append(u.SNATRemoved, s.Key)
		}
	}
	return d.Update(u)
}

// manyWorkloads have all ports of so many VIPs that it is snatPorts, manyRanges each.
func manyWorkloads() (all []model.MuxSNAT) {
	for left := snatPorts / model.RangePorts; left > 0; left -= ranges {
		vip := netip.AddrFrom4([4]byte{198, 51, 100, byte(left / ranges)})
		for first := 0; first < min(left, ranges); first += manyRanges {
			host := len(all) % manyHosts
			s := model.MuxSNAT{
				Key:    model.SNATKey{VIP: vip, Address: netip.AddrFrom4([4]byte{10, byte(len(all) >> 16), byte(len(all) >> 8), byte(len(all))})},
				Tunnel: netip.AddrFrom4([4]byte{10, byte(host >> 8), byte(host), 0}),
			}
			for r := first; r < min(left, first+manyRanges); r++ {
				s.Ranges = append(s.Ranges, model.Range(r))
			}
			all = append(all, s)
		}
	}
	return all
}
