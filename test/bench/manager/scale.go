package main

import (
	"context"
	"fmt"
	"os"
)

// scaleTenants is how many tenants share the VIPs.
const scaleTenants = 4

// more measures what one change costs where there is more: of VIPs, whose tenants have quotas, and of muxes.
func (b *bench) more(ctx context.Context) error {
	sizes, memory := []int{b.scale(1000), b.scale(100_000)}, []memoryUse{}
	for _, vips := range sizes {
		of := size{replicas: 1, vips: vips, muxes: 2, agents: b.scale(1000), tenants: scaleTenants, alone: true}
		err := b.with(ctx, of, func(w *world) error {
			if err := w.changes(ctx, "one change with quotas", b.scale(b.changes)); err != nil {
				return err
			}
			use, err := w.memoryUse(ctx)
			memory = append(memory, use)
			return err
		})
		if err != nil {
			return fmt.Errorf("%d VIPs: %w", vips, err)
		}
	}
	each := func(of func(memoryUse) float64) float64 {
		return (of(memory[1]) - of(memory[0])) / float64(sizes[1]-sizes[0])
	}
	vip := result{
		Name: "memory of a VIP", VIPs: sizes[1],
		PerVIP:   each(func(m memoryUse) float64 { return m.live }),
		Resident: each(func(m memoryUse) float64 { return m.resident }),
	}
	b.results = append(b.results, vip)
	fmt.Fprintf(os.Stderr, "  %s\n", vip)
	for _, muxes := range []int{8, 100} {
		err := b.with(ctx, size{replicas: 3, vips: 100, muxes: muxes, agents: 10}, func(w *world) error {
			return w.changes(ctx, "one change to muxes", b.scale(b.changes))
		})
		if err != nil {
			return fmt.Errorf("%d muxes: %w", muxes, err)
		}
	}
	return nil
}
