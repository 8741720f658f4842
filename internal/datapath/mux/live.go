package mux

import (
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// readLive restores what this process must know of adopted tables: which rows are in use and by
// whom.
func (d *Datapath) readLive() error {
	used := map[uint32]bool{}
	if err := d.adoptVIPs(); err != nil {
		return err
	}
	if err := d.adoptSNAT(); err != nil {
		return err
	}
	for vip := range d.snat.vips {
		used[d.vips.live[vip].row.Id] = true
	}
	err := eachEndpoint(&d.tables, func(key model.EndpointKey, row bpf.MuxEndpoint) error {
		live, err := d.readEndpoint(row)
		if err != nil {
			return fmt.Errorf("adopt endpoint %s: %w", key, err)
		}
		used[row.Id] = true
		d.live[key] = live
		d.tunnels.replace(nil, live)
		if key.Port == model.AllPorts {
			d.allPorts++
		}
		d.vips.adopt(key.VIP)
		return nil
	})
	if err != nil {
		return err
	}
	d.ids.Claim(used)
	if err := d.adoptSources(); err != nil {
		return err
	}
	if err := d.adoptLimits(); err != nil {
		return err
	}
	if err := d.adoptShares(); err != nil {
		return err
	}
	if err := d.adoptEndpointIndex(); err != nil {
		return err
	}
	if err := d.adoptMembers(); err != nil {
		return err
	}
	return d.readHops()
}

func (d *Datapath) readEndpoint(row bpf.MuxEndpoint) (*liveEndpoint, error) {
	pair := bpf.UnpackSlices(row.Slices)
	buckets, previous, err := readBuckets(&d.tables, pair)
	if err != nil {
		return nil, err
	}
	if rows, ok := pair.BucketSpan(len(previous) > 0); ok {
		if err := d.bucketSlices.Claim(rows); err != nil {
			return nil, err
		}
	}
	if err := d.backendSlices.Claim(pair.Backends); err != nil {
		return nil, err
	}
	rows, err := readBackends(&d.tables, pair.Backends)
	if err != nil {
		return nil, err
	}
	live := &liveEndpoint{row: row, settings: readEndpointSettings(row), buckets: buckets, previous: previous}
	for slot, backend := range rows {
		live.backends = append(live.backends, fromBackend(slot, backend))
		d.hops.adopt(bpf.FromAddress(backend.Tunnel), backend.NextHop)
	}
	slices.SortFunc(live.backends, func(a, b model.MuxBackend) int { return int(a.Slot) - int(b.Slot) })
	return live, nil
}

// eachEndpoint calls do for every row of endpoints but those of VIPs.
func eachEndpoint(t *bpf.Tables, do func(model.EndpointKey, bpf.MuxEndpoint) error) error {
	return eachRow(t, func(key model.EndpointKey, row bpf.MuxEndpoint) error {
		if row.Flags&bpf.MuxEndpointFlagENDPOINT_VIP != 0 {
			return nil
		}
		return do(key, row)
	})
}

func eachRow(t *bpf.Tables, do func(model.EndpointKey, bpf.MuxEndpoint) error) error {
	var key bpf.MuxEndpointKey
	var row bpf.MuxEndpoint
	entries := t.Endpoints.Iterate()
	for entries.Next(&key, &row) {
		if err := do(bpf.FromKey(key), row); err != nil {
			return err
		}
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read endpoints: %w", err)
	}
	return nil
}

// Endpoints lists the live endpoints, in order: until TakeOver, those of the predecessor.
func (d *Datapath) Endpoints() ([]model.EndpointKey, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.predecessor != nil {
		return slices.Clone(d.predecessor.endpoints), nil
	}
	keys := make([]model.EndpointKey, 0, len(d.live))
	for key := range d.live {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, model.EndpointKey.Compare)
	return keys, nil
}
