package fake

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/hardware"
)

// Driver programs a Switch.
type Driver struct{ s *Switch }

var _ hardware.Driver = (*Driver)(nil)

// Capabilities implements hardware.Driver.
func (d *Driver) Capabilities(ctx context.Context) (hardware.Capabilities, error) {
	if err := d.s.enter(ctx); err != nil {
		return hardware.Capabilities{}, err
	}
	defer d.s.mu.Unlock()
	return d.s.current(), nil
}

// Program implements hardware.Driver.
func (d *Driver) Program(ctx context.Context, e hardware.Entry) error {
	if err := d.s.enter(ctx); err != nil {
		return err
	}
	defer d.s.mu.Unlock()
	if refusal := d.s.refusals[e.VIP]; refusal != nil {
		return refusal
	}
	if err := d.s.ours.Fits(e, d.s.current()); err != nil {
		return err
	}
	if d.s.others[e.VIP] {
		return &hardware.Refusal{VIP: e.VIP, Reason: "another process has a route to it"}
	}
	if before, ok := d.s.ours.Get(e.VIP); ok && before.Equal(e) {
		return nil
	}
	d.s.ours.Put(e)
	d.s.programs++
	return nil
}

// Remove implements hardware.Driver.
func (d *Driver) Remove(ctx context.Context, vip netip.Addr) error {
	if err := d.s.enter(ctx); err != nil {
		return err
	}
	defer d.s.mu.Unlock()
	d.s.ours.Delete(vip)
	return nil
}

// Read implements hardware.Driver.
func (d *Driver) Read(ctx context.Context) ([]hardware.Entry, error) {
	if err := d.s.enter(ctx); err != nil {
		return nil, err
	}
	defer d.s.mu.Unlock()
	return d.s.ours.Entries(), nil
}

// Boot implements hardware.Driver.
func (d *Driver) Boot(ctx context.Context) (string, error) {
	if err := d.s.enter(ctx); err != nil {
		return "", err
	}
	defer d.s.mu.Unlock()
	return fmt.Sprintf("boot-%d", d.s.boots), nil
}

// Ports implements hardware.Driver.
func (d *Driver) Ports(ctx context.Context) (hardware.Ports, error) {
	if err := d.s.enter(ctx); err != nil {
		return hardware.Ports{}, err
	}
	defer d.s.mu.Unlock()
	return hardware.NewPorts(slices.Clone(d.s.ports)), nil
}

// Close implements hardware.Driver.
func (d *Driver) Close() error { return nil }
