package sonic

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/hardware"
)

// route is what the databases have of a VIP.
type route struct {
	wanted  []netip.Addr // endpoints, as the agent has taken them: in our order
	active  []netip.Addr // as the agent says that the ASIC has them: in its order
	pending bool         // a change waits for the agent
}

// settled tells whether the ASIC has what the agent was told.
func (r route) settled() bool { return !r.pending && sameSet(r.wanted, r.active) }

// entry is the VIP's as the switch has it. The order is ours if the members are; the agent sorts them.
func (r route) entry(vip, source netip.Addr) hardware.Entry {
	e := hardware.Entry{VIP: vip, Source: source}
	members := r.active
	if sameSet(r.wanted, r.active) {
		members = r.wanted
	}
	for _, tunnel := range members {
		e.Members = append(e.Members, hardware.Member{Tunnel: tunnel, Entries: 1})
	}
	return e
}

func sameSet(a, b []netip.Addr) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, netip.Addr.Compare)
	slices.SortFunc(b, netip.Addr.Compare)
	return slices.Equal(a, b)
}

func endpoints(e hardware.Entry) (list []netip.Addr) {
	for _, m := range e.Members {
		list = append(list, m.Tunnel)
	}
	return list
}

// endpointText is a list as SONiC writes it.
func endpointText(list []netip.Addr) string {
	texts := make([]string, len(list))
	for i, a := range list {
		texts[i] = a.String()
	}
	return strings.Join(texts, ",")
}

// parseEndpoints reads a list. What is no list of addresses is none.
func parseEndpoints(text string) (list []netip.Addr) {
	if text == "" {
		return nil
	}
	for field := range strings.SplitSeq(text, ",") {
		a, err := netip.ParseAddr(field)
		if err != nil || a.Zone() != "" {
			return nil
		}
		list = append(list, a.Unmap())
	}
	return list
}

// prefix is how a VIP is called in keys.
func prefix(vip netip.Addr) string { return netip.PrefixFrom(vip, vip.BitLen()).String() }

// parsePrefix reads a prefix of a single address.
func parsePrefix(text string) (netip.Addr, bool) {
	p, err := netip.ParsePrefix(text)
	if err != nil || !p.IsSingleIP() || prefix(p.Addr()) != text {
		return netip.Addr{}, false
	}
	return p.Addr(), true
}

func (d *Driver) applKey(vip netip.Addr) string {
	return routeTable + ":" + d.config.VNET + ":" + prefix(vip)
}

func (d *Driver) stateKey(vip netip.Addr) string {
	return routeTable + "|" + d.config.VNET + "|" + prefix(vip)
}

// routes reads what the databases have of VIPs: what waits first, so that what was taken meanwhile is in what is read next.
func (d *Driver) routes(ctx context.Context, vips []netip.Addr) (map[netip.Addr]route, error) {
	appl, state := make([]string, len(vips)), make([]string, len(vips))
	for i, vip := range vips {
		appl[i], state[i] = d.applKey(vip), d.stateKey(vip)
	}
	pending, err := d.pending(ctx, vips)
	if err != nil {
		return nil, err
	}
	wanted, err := d.databases.fields(ctx, applDB, appl, "endpoint")
	if err != nil {
		return nil, err
	}
	active, err := d.databases.fields(ctx, stateDB, state, "state", "active_endpoints")
	if err != nil {
		return nil, err
	}
	all := make(map[netip.Addr]route, len(vips))
	for i, vip := range vips {
		r := route{wanted: parseEndpoints(wanted[appl[i]][0]), pending: pending[vip]}
		if active[state[i]][0] == "active" {
			r.active = parseEndpoints(active[state[i]][1])
		}
		all[vip] = r
	}
	return all, nil
}

// pending tells for which VIPs a change waits for the agent.
func (d *Driver) pending(ctx context.Context, vips []netip.Addr) (map[netip.Addr]bool, error) {
	pending := map[netip.Addr]bool{}
	for ; len(vips) > 0; vips = vips[min(batch, len(vips)):] {
		part := vips[:min(batch, len(vips))]
		members := make([]any, len(part))
		for i, vip := range part {
			members[i] = d.config.VNET + ":" + prefix(vip)
		}
		err := retry(ctx, "read what waits", func() error {
			waits, err := d.databases.all[applDB].SMIsMember(ctx, routeTable+"_KEY_SET", members...).Result()
			for i, waits := range waits {
				pending[part[i]] = waits
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return pending, nil
}

// vips lists the VIPs of our VNET in both databases.
func (d *Driver) vips(ctx context.Context) ([]netip.Addr, error) {
	seen := map[netip.Addr]bool{}
	for database, start := range map[int]string{applDB: routeTable + ":" + d.config.VNET + ":", stateDB: routeTable + "|" + d.config.VNET + "|"} {
		keys, err := d.databases.keys(ctx, database, start+"*")
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			if vip, ok := parsePrefix(strings.TrimPrefix(key, start)); ok {
				seen[vip] = true
			}
		}
	}
	all := make([]netip.Addr, 0, len(seen))
	for vip := range seen {
		all = append(all, vip)
	}
	return all, nil
}
