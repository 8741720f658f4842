package xdp

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/xdp/bpf"
)

// sourceRows are the rows of outer sources of a TIP, by the id of its host.
func sourceRows(id uint32, sources []netip.Addr) []bpf.SwitchTipSource {
	rows := make([]bpf.SwitchTipSource, len(sources))
	for i, source := range sources {
		rows[i] = bpf.SwitchTipSource{Id: id, Address: bpf.SwitchAddress{Words: abi.Words(source)}}
	}
	return rows
}

// writeSources writes the outer sources of an entry for a fresh id, which has none then.
func (d *Driver) writeSources(t *tables, e hardware.Entry, id uint32) error {
	if err := d.deleteSources(t, id, t.left[id]); err != nil {
		return err
	}
	delete(t.left, id)
	for _, row := range sourceRows(id, e.Sources) {
		if err := d.objects.TipSources.Update(row, uint32(1), ebpf.UpdateAny); err != nil {
			return fmt.Errorf("write an outer source of %s: %w", e.VIP, err)
		}
		t.sources++
	}
	return nil
}

func (d *Driver) deleteSources(t *tables, id uint32, sources []netip.Addr) error {
	for _, row := range sourceRows(id, sources) {
		if err := d.objects.TipSources.Delete(row); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("delete outer source %s: %w", abi.Address(row.Address.Words), err)
		}
		t.sources--
	}
	return nil
}
