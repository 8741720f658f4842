package mux

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
)

// Pool is what all endpoints share.
type Pool struct {
	HashKey flowhash.Key
	Source4 netip.Addr // outer source of IPv4 tunnels; invalid: those are dropped
	Source6 netip.Addr
	MTU     int // of the interface
}

// SetPool writes the pool's row. The program reads it field by field, so what differs between
// muxes or changes the choice of backends is to be set before the first endpoint.
func (d *Datapath) SetPool(p Pool) error {
	if p.Source4.IsValid() && !p.Source4.Is4() || p.Source6.IsValid() && !p.Source6.Is6() {
		return fmt.Errorf("set pool: sources %s and %s are not of IPv4 and IPv6", p.Source4, p.Source6)
	}
	if p.MTU <= 0 {
		return fmt.Errorf("set pool: mtu %d is not positive", p.MTU)
	}
	return d.updatePool(func(row *muxPool) {
		row.HashKey = toHashKey(p.HashKey)
		row.Source4, row.Source6 = toAddress(p.Source4), toAddress(p.Source6)
		row.Mtu = uint32(p.MTU)
	})
}

// Pool reads the live row; it is all zero before the first SetPool.
func (d *Datapath) Pool() (Pool, error) {
	row, err := d.tables.readPool()
	return fromPool(row), err
}

// SetGeneration notes which version of the desired state the tables hold.
func (d *Datapath) SetGeneration(g model.Generation) error {
	return d.updatePool(func(row *muxPool) { row.Generation = uint64(g) })
}

// Generation is what SetGeneration noted last, by whichever process.
func (d *Datapath) Generation() (model.Generation, error) {
	row, err := d.tables.readPool()
	return model.Generation(row.Generation), err
}

func fromPool(row muxPool) Pool {
	return Pool{
		HashKey: fromHashKey(row.HashKey),
		Source4: fromAddress(row.Source4), Source6: fromAddress(row.Source6),
		MTU: int(row.Mtu),
	}
}

func (t *tables) readPool() (row muxPool, err error) {
	if err := t.Pool.Lookup(uint32(0), &row); err != nil {
		return row, fmt.Errorf("read pool: %w", err)
	}
	return row, nil
}

func (d *Datapath) updatePool(change func(*muxPool)) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	row, err := d.tables.readPool()
	if err != nil {
		return err
	}
	change(&row)
	if err := d.tables.Pool.Put(uint32(0), row); err != nil {
		return fmt.Errorf("write pool: %w", err)
	}
	return nil
}
