package linux

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/hardware"
)

// Program implements hardware.Driver.
func (d *Driver) Program(ctx context.Context, e hardware.Entry) error {
	return d.do(ctx, func() error { return d.program(ctx, e.Clone()) })
}

// Remove implements hardware.Driver.
func (d *Driver) Remove(ctx context.Context, vip netip.Addr) error {
	return d.do(ctx, func() error { return d.remove(ctx, vip) })
}

func (d *Driver) program(ctx context.Context, e hardware.Entry) error {
	if err := e.Validate(); err != nil {
		return err
	}
	t, err := d.verified(ctx, e.VIP)
	if err != nil {
		return err
	}
	if err := d.refuse(ctx, t, e); err != nil {
		return err
	}
	if before, ok := t.inventory.Get(e.VIP); ok && before.Equal(e) {
		return nil
	}
	if err := d.write(ctx, t, e); err != nil {
		d.abandon(ctx)
		return err
	}
	t.put(e)
	return d.deleteUnused(ctx, t)
}

// refuse returns a *Refusal of what the kernel can't do, or what others do.
func (d *Driver) refuse(ctx context.Context, t *tables, e hardware.Entry) error {
	if err := t.inventory.Fits(e, d.capabilities(t)); err != nil {
		return err
	}
	for _, m := range e.Members {
		if m.Entries > weightMost {
			return &hardware.Refusal{VIP: e.VIP, Reason: fmt.Sprintf("%s has %d entries, and a next hop at most %d", m.Tunnel, m.Entries, weightMost)}
		}
	}
	source, err := d.kernel.tunnelSource(ctx, d.seg6)
	if err != nil {
		return err
	}
	if source != e.Source {
		return &hardware.Refusal{VIP: e.VIP, Reason: fmt.Sprintf("the kernel's tunnels have the source %s, not %s", source, e.Source)}
	}
	return nil
}

// current returns what the kernel has, read when it is not known, and rid of what a driver that was cut off has left.
func (d *Driver) current(ctx context.Context) (*tables, error) {
	if d.tables != nil {
		return d.tables, nil
	}
	t, err := d.load(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range t.orphans {
		if err := d.kernel.deleteObject(ctx, id); err != nil {
			return nil, err
		}
	}
	if len(t.orphans) > 0 {
		if t, err = d.load(ctx); err != nil {
			return nil, err
		}
	}
	d.tables = t
	return t, nil
}

// verified returns what the kernel has, of which the entry of a VIP is known to be true.
func (d *Driver) verified(ctx context.Context, vip netip.Addr) (*tables, error) {
	if _, err := d.ensureDevice(); err != nil {
		return nil, err
	}
	for range attempts {
		t, err := d.current(ctx)
		if err != nil {
			return nil, err
		}
		r, err := d.kernel.routeTo(ctx, vip)
		if err != nil {
			return nil, err
		}
		if r != nil && r.isBehindOurs() {
			r = nil
		}
		if r != nil && (r.protocol != protocol || r.table != unix.RT_TABLE_MAIN) {
			return nil, &hardware.Refusal{VIP: vip, Reason: fmt.Sprintf("there is a route to it by others (type %d, protocol %d, metric %d, table %d)", r.kind, r.protocol, r.metric, r.table)}
		}
		known, err := d.isTrue(ctx, t, vip, r)
		if err != nil || known {
			return t, err
		}
		if r != nil && t.groups[vip].id == 0 { // ours by its protocol, and it leads to no group: it is in the way
			if err := d.kernel.deleteRoute(ctx, vip); err != nil {
				return nil, err
			}
		}
		d.tables = nil
	}
	return nil, fmt.Errorf("the route to %s changes all the time: someone else writes it", vip)
}

// isTrue tells whether the kernel has of a VIP what is known of it.
func (d *Driver) isTrue(ctx context.Context, t *tables, vip netip.Addr, r *route) (bool, error) {
	e, known := t.inventory.Get(vip)
	if r == nil || !known {
		return r == nil && !known, nil
	}
	g := t.groups[vip]
	if r.group != g.id {
		return false, nil
	}
	o, err := d.kernel.getObject(ctx, g.id)
	if err != nil || o == nil {
		return false, err
	}
	return slices.EqualFunc(e.Members, o.members, func(m hardware.Member, has member) bool {
		return has.id == t.hops[hop{vip.Is6(), m.Tunnel}] && has.weight == m.Entries
	}), nil
}

// write makes before it breaks: next hops, the group, the route.
func (d *Driver) write(ctx context.Context, t *tables, e hardware.Entry) error {
	members := make([]member, len(e.Members))
	for i, m := range e.Members {
		h := hop{e.VIP.Is6(), m.Tunnel}
		id, ok := t.hops[h]
		if !ok {
			var err error
			if id, err = t.allocate(firstHop); err != nil {
				return err
			}
			if err := d.kernel.addHop(ctx, id, h, d.device); err != nil {
				return err
			}
			t.hops[h] = id
		}
		members[i] = member{id, m.Entries}
	}
	g, exists := t.groups[e.VIP]
	buckets := bucketsFor(e.Rows())
	if exists && g.buckets >= buckets && !g.shared {
		return d.kernel.putGroup(ctx, g.id, members, g.buckets, true)
	}
	id, err := t.allocate(firstGroup)
	if err != nil {
		return err
	}
	if err := d.kernel.putGroup(ctx, id, members, buckets, false); err != nil {
		return err
	}
	if err := d.kernel.putRoute(ctx, e.VIP, id, exists); err != nil {
		return err
	}
	t.groups[e.VIP] = group{id: id, buckets: buckets}
	if !exists {
		return nil
	}
	return d.deleteGroup(ctx, t, g)
}

func bucketsFor(rows uint32) uint16 {
	buckets := uint32(bucketsLeast)
	for buckets < rows*bucketsPerRow && buckets < bucketsMost {
		buckets *= 2
	}
	return uint16(buckets)
}

func (d *Driver) remove(ctx context.Context, vip netip.Addr) error {
	t, err := d.current(ctx)
	if err != nil {
		return err
	}
	// In this order no packet meets a group that is going away.
	err = d.kernel.deleteRoute(ctx, vip)
	if g, ok := t.groups[vip]; ok && err == nil {
		if err = d.deleteGroup(ctx, t, g); err == nil {
			delete(t.groups, vip)
			t.delete(vip)
		}
	}
	if err != nil {
		d.abandon(ctx)
		return err
	}
	return d.deleteUnused(ctx, t)
}

// deleteGroup deletes a group that a VIP's route leads to no more. A shared one is left over, if at all, for the next load.
func (d *Driver) deleteGroup(ctx context.Context, t *tables, g group) error {
	if g.shared {
		d.tables = nil
		return nil
	}
	t.free(firstGroup, g.id)
	return d.kernel.deleteObject(ctx, g.id)
}

// deleteUnused deletes next hops that no group has.
func (d *Driver) deleteUnused(ctx context.Context, t *tables) error {
	for h, id := range t.hops {
		if t.uses[h] > 0 {
			continue
		}
		if err := d.kernel.deleteObject(ctx, id); err != nil {
			d.abandon(ctx)
			return err
		}
		delete(t.hops, h)
		delete(t.uses, h)
		t.free(firstHop, id)
	}
	return nil
}

// abandon forgets what is known after a change that was cut short, and takes back what it left. What can't be taken back now
// is when the tables are read next.
func (d *Driver) abandon(ctx context.Context) {
	d.tables = nil
	_, _ = d.current(context.WithoutCancel(ctx))
}
