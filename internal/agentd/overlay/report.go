package overlay

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// Bounds of Report: see the table of internal/limits.
const (
	reportAttachments = 256
	reportBackends    = 1024 // of all attachments together
)

// Report is what the manager is told of bypassed traffic: of what is too much, the attachments and the backends with the
// most packets.
func Report(c *Controller) ([]*weirv1.NetworkTraffic, error) {
	all, err := ReadStatistics(c)
	if err != nil {
		return nil, err
	}
	return reportOf(all), nil
}

func reportOf(all []Statistics) (report []*weirv1.NetworkTraffic) {
	packets := func(b BackendStatistics) uint64 { return b.In.Packets + b.Out.Packets }
	sum := func(s Statistics) uint64 { return s.Traffic.In.Packets + s.Traffic.Out.Packets }
	if len(all) > reportAttachments {
		slices.SortStableFunc(all, func(a, b Statistics) int { return cmp.Compare(sum(b), sum(a)) })
		all = all[:reportAttachments]
	}
	var counts []uint64
	for _, s := range all {
		for _, b := range s.Backends {
			counts = append(counts, packets(b))
		}
	}
	least, ties := uint64(0), len(counts) // of those with the least packets so many are told
	if len(counts) > reportBackends {
		slices.SortFunc(counts, func(a, b uint64) int { return cmp.Compare(b, a) })
		least = counts[reportBackends-1]
		ties = reportBackends - slices.Index(counts, least)
	}
	for _, s := range all {
		p := &weirv1.NetworkTraffic{
			Network: s.Network, Address: s.VIP.String(), Vip: s.Service.String(), HandshakeTime: durationpb.New(s.Handshakes.Sum),
		}
		if s.Handshakes.Count() > 0 {
			p.Handshakes = s.Handshakes.Buckets[:]
		}
		for _, b := range s.Backends {
			switch n := packets(b); {
			case n < least || n == least && ties == 0:
				continue
			case n == least:
				ties--
			}
			p.Backends = append(p.Backends, &weirv1.NetworkBackendTraffic{
				Backend: b.Address.String(), Protocol: b.Protocol.String(), Port: uint32(b.Port), PacketsIn: b.In.Packets, BytesIn: b.In.Bytes, PacketsOut: b.Out.Packets,
				BytesOut: b.Out.Bytes, Open: b.Open, Opened: b.Opened, Confirmed: b.Confirmed, Refused: b.Refused, Resets: b.Reset,
				Cleaned: b.Cleaned, RepeatedSyns: b.Repeated,
			})
		}
		report = append(report, p)
	}
	return report
}
