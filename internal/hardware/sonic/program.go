package sonic

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/hardware"
)

// Program implements hardware.Driver.
func (d *Driver) Program(ctx context.Context, e hardware.Entry) error {
	if err := e.Validate(); err != nil {
		return err
	}
	source, err := d.source(ctx)
	if err != nil {
		return err
	}
	r, err := d.current(ctx, source, e.VIP)
	if err != nil {
		return err
	}
	capabilities, err := d.capabilities(ctx, source, d.tables)
	if err != nil {
		return err
	}
	if err := d.refuse(ctx, capabilities, source, e); err != nil {
		return err
	}
	before, known := d.tables.Get(e.VIP)
	if known && before.Equal(e) && r.settled() {
		return nil
	}
	want := endpoints(e)
	done := func(r route) bool { return r.settled() && slices.Equal(r.wanted, want) }
	r, err = d.change(ctx, e.VIP, want, done)
	switch {
	case err != nil:
		return err
	case done(r):
		d.tables.Put(e)
		return nil
	case r.pending:
		d.tables = nil
		return fmt.Errorf("program %s: the orchestration agent has not taken it within %s", e.VIP, d.config.Patience)
	}
	return d.restore(ctx, before, e.VIP)
}

// refuse returns a *Refusal of what is known beforehand.
func (d *Driver) refuse(ctx context.Context, capabilities hardware.Capabilities, source netip.Addr, e hardware.Entry) error {
	if err := d.tables.Fits(e, capabilities); err != nil {
		return err
	}
	if source != e.Source {
		return &hardware.Refusal{VIP: e.VIP, Reason: fmt.Sprintf("the VXLAN tunnel of %s has the source %s, not %s", d.config.VNET, source, e.Source)}
	}
	if groups := d.groups(e); groups > d.config.Groups {
		return &hardware.Refusal{VIP: e.VIP, Reason: fmt.Sprintf("it would be group %d, and the switch has %d", groups, d.config.Groups)}
	}
	if _, known := d.tables.Get(e.VIP); known {
		return nil
	}
	// The agent would take the route of others away.
	others := []string{"ROUTE_TABLE:" + e.VIP.String(), "ROUTE_TABLE:" + prefix(e.VIP)}
	fields, err := d.databases.fields(ctx, applDB, others, "ifname", "nexthop")
	if err != nil {
		return err
	}
	for _, key := range others {
		if slices.ContainsFunc(fields[key], func(value string) bool { return value != "" }) {
			return &hardware.Refusal{VIP: e.VIP, Reason: "there is a route to it by others: " + key}
		}
	}
	return nil
}

// groups is how many different sets of members the switch would have.
func (d *Driver) groups(e hardware.Entry) uint32 {
	sets := map[string]bool{}
	for _, other := range append(d.tables.Entries(), e) {
		if list := endpoints(other); len(list) > 1 {
			slices.SortFunc(list, netip.Addr.Compare)
			sets[endpointText(list)] = true
		}
	}
	return uint32(len(sets))
}

// current reads what the databases have of a VIP, and all if it is not what is known.
func (d *Driver) current(ctx context.Context, source, vip netip.Addr) (route, error) {
	if _, err := d.Boot(ctx); err != nil {
		return route{}, err
	}
	routes, err := d.routes(ctx, []netip.Addr{vip})
	if err != nil {
		return route{}, err
	}
	r := routes[vip]
	if d.tables != nil {
		known, ok := d.tables.Get(vip)
		if has := r.entry(vip, source); r.settled() && (ok && has.Equal(known) || !ok && len(has.Members) == 0) {
			return r, nil
		}
	}
	if d.tables, err = d.read(ctx, source); err != nil {
		return route{}, err
	}
	return r, nil
}

// change writes a VIP's endpoints, or deletes it if there are none, and waits until it is done.
func (d *Driver) change(ctx context.Context, vip netip.Addr, list []netip.Addr, done func(route) bool) (route, error) {
	key := d.config.VNET + ":" + prefix(vip)
	keys := []string{routeTable + "_CHANNEL@0", routeTable + "_KEY_SET", "_" + d.applKey(vip), routeTable + "_DEL_SET"}
	script, args := deleteScript, []any{"G", key}
	if len(list) > 0 {
		script, args = setScript, append(args, "endpoint", endpointText(list))
	}
	if _, err := d.databases.run(ctx, applDB, "write "+vip.String(), script, keys, args...); err != nil {
		d.tables = nil
		return route{}, err
	}
	r, err := d.wait(ctx, vip, done)
	if err != nil {
		d.tables = nil
	}
	return r, err
}

// restore writes the entry before, which the ASIC has still, so that the agent is told nothing else.
func (d *Driver) restore(ctx context.Context, before hardware.Entry, vip netip.Addr) error {
	list := endpoints(before)
	d.tables = nil
	r, err := d.change(ctx, vip, list, func(r route) bool { return r.settled() && slices.Equal(r.wanted, list) })
	if err != nil {
		return err
	}
	if !r.settled() {
		return fmt.Errorf("program %s: the orchestration agent takes neither it nor what was before", vip)
	}
	return &hardware.Refusal{VIP: vip, Reason: fmt.Sprintf("the orchestration agent has not made it active within %s; its log may say why", d.config.Patience)}
}

// Remove implements hardware.Driver.
func (d *Driver) Remove(ctx context.Context, vip netip.Addr) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	routes, err := d.routes(ctx, []netip.Addr{vip})
	if err != nil {
		return err
	}
	gone := func(r route) bool { return !r.pending && len(r.active) == 0 && len(r.wanted) == 0 }
	if gone(routes[vip]) {
		if d.tables != nil {
			d.tables.Delete(vip)
		}
		return nil
	}
	r, err := d.change(ctx, vip, nil, gone)
	if err != nil {
		return err
	}
	if !gone(r) {
		d.tables = nil
		return fmt.Errorf("remove %s: the orchestration agent has not done it within %s", vip, d.config.Patience)
	}
	if d.tables != nil {
		d.tables.Delete(vip)
	}
	return nil
}
