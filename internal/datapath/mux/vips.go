package mux

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// vips knows the row of every VIP that has an endpoint or source NAT, and its index of vip_usage. An index that
// is given up may still own cells, which would count for the VIP that gets it next: it is retired until
// a sweep has freed them.
type vips struct {
	live    map[netip.Addr]*liveVIP
	ids     *alloc.IDs
	retired map[uint32]bool
}

type liveVIP struct {
	row       bpf.MuxEndpoint
	endpoints int // that hold it
}

func newVIPs(n uint32) *vips {
	return &vips{live: map[netip.Addr]*liveVIP{}, ids: alloc.NewIDs("vip_usage", n), retired: map[uint32]bool{}}
}

// adopt counts a live endpoint of the VIP.
func (v *vips) adopt(vip netip.Addr) {
	if live := v.live[vip]; live != nil {
		live.endpoints++
	}
}

// adoptVIPs reads the rows of VIPs from adopted tables.
func (d *Datapath) adoptVIPs() error {
	used := map[uint32]bool{}
	err := eachRow(&d.tables, func(key model.EndpointKey, row bpf.MuxEndpoint) error {
		if row.Flags&bpf.MuxEndpointFlagENDPOINT_VIP != 0 {
			used[row.Vip] = true
			d.vips.live[key.VIP] = &liveVIP{row: row}
		}
		return nil
	})
	if err != nil {
		return err
	}
	m, err := mapFlows(&d.tables)
	if err != nil {
		return err
	}
	defer m.Close()
	for _, id := range d.vips.ids.Free {
		if !used[id] && m.usage[id].Cells != [2]uint64{} {
			used[id], d.vips.retired[id] = true, true
		}
	}
	d.vips.ids.Claim(used)
	return nil
}

// takeVIPID is an index that owns no cells.
func (d *Datapath) takeVIPID() (uint32, error) {
	if len(d.vips.ids.Free) == 0 && len(d.vips.retired) > 0 {
		if _, err := d.sweep(); err != nil {
			return 0, err
		}
	}
	return d.vips.ids.Take()
}

// openVIP is what is known of a VIP; one that is new has no row in endpoints yet.
func (d *Datapath) openVIP(vip netip.Addr) (*liveVIP, error) {
	if live := d.vips.live[vip]; live != nil {
		return live, nil
	}
	id, err := d.takeVIPID()
	if err != nil {
		return nil, err
	}
	if err := d.clearLimits(id); err != nil {
		d.vips.ids.Put(id)
		return nil, err
	}
	live := &liveVIP{row: bpf.MuxEndpoint{Slices: bpf.SlicePair{BucketBits: bpf.NoBuckets}.Pack(), Vip: id}}
	d.vips.live[vip] = live
	return live, nil
}

// holdVIP makes or changes the row of the VIP of a change's endpoint, and notes its index there.
func (d *Datapath) holdVIP(c *change) error {
	live, err := d.openVIP(c.key.VIP)
	if err != nil {
		return err
	}
	if c.old == nil {
		live.endpoints++
	}
	c.next.row.Vip = live.row.Vip
	row := live.row
	row.Flags = withPing(row.Flags|bpf.MuxEndpointFlagENDPOINT_VIP, c.next.settings.flags&bpf.MuxEndpointFlagENDPOINT_PING != 0)
	return d.writeVIP(c.key.VIP, live, row)
}

func withPing(flags bpf.MuxEndpointFlag, ping bool) bpf.MuxEndpointFlag {
	if ping {
		return flags | bpf.MuxEndpointFlagENDPOINT_PING
	}
	return flags &^ bpf.MuxEndpointFlagENDPOINT_PING
}

// writeVIP replaces the VIP's row. One with source NAT is in the index, as endpoints are.
func (d *Datapath) writeVIP(vip netip.Addr, live *liveVIP, row bpf.MuxEndpoint) error {
	if row == live.row {
		return nil
	}
	if err := d.tables.Endpoints.Put(bpf.ToKey(vipKey(vip)), row); err != nil {
		return fmt.Errorf("write row of vip %s: %w", vip, err)
	}
	live.row = row
	if row.Flags&bpf.MuxEndpointFlagENDPOINT_SNAT != 0 {
		d.index.put(bpf.ToKey(vipKey(vip)), row)
	}
	return nil
}

// releaseVIP removes the row of the VIP when its last endpoint goes, unless workloads leave as it.
func (d *Datapath) releaseVIP(vip netip.Addr) error {
	live := d.vips.live[vip]
	if live == nil {
		return nil
	}
	if live.endpoints--; live.endpoints > 0 || live.row.Flags&bpf.MuxEndpointFlagENDPOINT_SNAT != 0 {
		return nil
	}
	return d.removeVIP(vip, live)
}

func (d *Datapath) removeVIP(vip netip.Addr, live *liveVIP) error {
	if err := d.tables.Endpoints.Delete(bpf.ToKey(vipKey(vip))); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("delete row of vip %s: %w", vip, err)
	}
	d.vips.retired[live.row.Vip] = true
	delete(d.vips.live, vip)
	return nil
}

// vipKey is the key of the VIP's own row.
func vipKey(vip netip.Addr) model.EndpointKey { return model.EndpointKey{VIP: vip} }
