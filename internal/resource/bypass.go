package resource

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// bypassed is what hosts of a VIP's backends have reported of its clients in virtual networks, by network: the handshakes
// of all hosts together, and each backend.
func (m *VIPs) bypassed(s *store.State, vip model.VIP) []*weirv1.NetworkTraffic {
	if len(vip.Attachments) == 0 {
		return nil
	}
	hosts, sums := map[string]bool{}, map[string]*weirv1.NetworkTraffic{}
	for _, e := range vip.Endpoints {
		for _, b := range e.Backends {
			hosts[b.Host] = true
		}
	}
	for _, a := range vip.Attachments {
		sums[a.Network] = &weirv1.NetworkTraffic{
			Network: a.Network, Address: a.Address.String(), Vip: vip.Address.String(), HandshakeTime: durationpb.New(0),
		}
	}
	for host := range hosts {
		node, there := s.Nodes.Get(host)
		if !there || node.Role != model.RoleHost {
			continue
		}
		_, said := m.Reported(s, node)
		for _, t := range said.GetHost().GetNetworks() {
			if sum := sums[t.GetNetwork()]; sum != nil && t.GetVip() == sum.Vip && t.GetAddress() == sum.Address {
				addTraffic(sum, t, host)
			}
		}
	}
	all := make([]*weirv1.NetworkTraffic, 0, len(sums))
	for _, a := range vip.Attachments {
		sum := sums[a.Network]
		slices.SortFunc(sum.Backends, func(a, b *weirv1.NetworkBackendTraffic) int {
			return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Backend, b.Backend), cmp.Compare(a.Host, b.Host))
		})
		all = append(all, sum)
	}
	return all
}

func addTraffic(sum, t *weirv1.NetworkTraffic, host string) {
	sum.HandshakeTime = durationpb.New(sum.HandshakeTime.AsDuration() + t.GetHandshakeTime().AsDuration())
	for i, n := range t.GetHandshakes() {
		if i == len(sum.Handshakes) {
			sum.Handshakes = append(sum.Handshakes, 0)
		}
		sum.Handshakes[i] += n
	}
	for _, b := range t.GetBackends() {
		sum.Backends = append(sum.Backends, &weirv1.NetworkBackendTraffic{
			Backend: b.GetBackend(), Protocol: b.GetProtocol(), Port: b.GetPort(), Host: host, PacketsIn: b.GetPacketsIn(), BytesIn: b.GetBytesIn(),
			PacketsOut: b.GetPacketsOut(), BytesOut: b.GetBytesOut(), Open: b.GetOpen(), Opened: b.GetOpened(), Confirmed: b.GetConfirmed(),
			Refused: b.GetRefused(), Resets: b.GetResets(), Cleaned: b.GetCleaned(), RepeatedSyns: b.GetRepeatedSyns(),
		})
	}
}
