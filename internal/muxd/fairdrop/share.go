package fairdrop

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/overload"
)

// shares limits VIPs to their fair share, and reports that.
type shares struct {
	config  Config
	sampled map[netip.Addr]bool // VIPs whose sources were sampled since the last call
	cut     map[netip.Addr]*cutVIP
}

// cutVIP is a VIP that is limited to its share, or was a moment ago.
type cutVIP struct {
	since, last time.Time
	reported    bool
	tenant      string
	evidence    string    // in the event
	heavy       time.Time // when it was last among those that exceed their share by most
}

func newShares(config Config) shares {
	return shares{config: config, sampled: map[netip.Addr]bool{}, cut: map[netip.Addr]*cutVIP{}}
}

// heavyPart is the part of the largest excess from which a VIP counts as heavy. One with less is rather a victim of the
// others' load: it is limited to its share, and no overload action is taken against it.
const heavyPart = 0.5

// excess is the load beyond the share, in packets a second.
func excess(a overload.Demand, cuts map[netip.Addr]overload.Cut) float64 {
	return cuts[a.VIP].All * a.Offered.Packets
}

// pressures are the VIPs that exceed their share by most, in order.
func (s *shares) pressures(at time.Time) (all []*weirv1.VIPPressure) {
	for _, vip := range slices.SortedFunc(maps.Keys(s.cut), netip.Addr.Compare) {
		if c := s.cut[vip]; c.reported && !c.heavy.IsZero() && at.Sub(c.heavy) < overload.Calm {
			all = append(all, &weirv1.VIPPressure{
				Vip: vip.String(), Tenant: c.tenant, Cause: string(model.CauseOverload), Evidence: c.evidence,
			})
		}
	}
	return all
}

// any says whether any VIP is limited.
func (s *shares) any() bool { return len(s.cut) > 0 }

// set limits VIPs by cuts. The sources of the busiest are sampled in any case.
func (s *shares) set(
	at time.Time, demands []overload.Demand, busy []overload.HeavyHitter, cuts map[netip.Addr]overload.Cut,
) error {
	all := make(map[netip.Addr]overload.Cut, len(cuts)+len(busy))
	for _, t := range busy {
		all[t.VIP] = overload.Cut{}
	}
	for vip, cut := range cuts {
		all[vip] = cut
	}
	if err := s.config.Datapath.SetShares(all); err != nil {
		return err
	}
	most := 0.0
	for _, a := range demands {
		most = max(most, excess(a, cuts))
	}
	for _, a := range demands {
		if cut, is := cuts[a.VIP]; is {
			s.began(at, a, cut)
			if excess(a, cuts) >= most*heavyPart {
				s.cut[a.VIP].heavy = at
			}
		}
	}
	for vip, c := range s.cut {
		if at.Sub(c.last) >= overload.Calm {
			s.ended(vip, c)
		}
	}
	clear(s.sampled)
	for vip := range all {
		s.sampled[vip] = true
	}
	return nil
}

// began reports a VIP once, as soon as its sources are known.
func (s *shares) began(at time.Time, a overload.Demand, cut overload.Cut) {
	c := s.cut[a.VIP]
	if c == nil {
		c = &cutVIP{since: at}
		s.cut[a.VIP] = c
	}
	c.last = at
	if c.reported || !s.sampled[a.VIP] {
		return
	}
	why := cut.Evidence(a)
	c.reported, c.tenant, c.evidence = true, a.Tenant, why
	s.config.Log.Warn("share on", "vip", a.VIP, "reason", why)
	s.config.Event(&weirv1.MuxEvent{Vip: a.VIP.String(), Reason: reason.ShareOn, Message: why, Warning: true})
}

func (s *shares) ended(vip netip.Addr, c *cutVIP) {
	delete(s.cut, vip)
	if !c.reported {
		return
	}
	why := fmt.Sprintf("within its share again, after %s", c.last.Sub(c.since).Round(time.Second))
	s.config.Log.Info("share off", "vip", vip, "reason", why)
	s.config.Event(&weirv1.MuxEvent{Vip: vip.String(), Reason: reason.ShareOff, Message: why})
}
