package store

import (
	"time"

	"github.com/weirlb/weir/internal/model"
)

const prefixPools = root + "pools/"

// Record says when and by whom a VIP was written.
type Record struct {
	Created time.Time
	Updated time.Time
	By      string // empty: it was not told
}

func (b *builder) putPool(pool model.AddressPool, generation model.Generation) {
	b.next.Pools.Set(pool.Name, pool)
	b.next.PoolWritten.Set(pool.Name, generation)
}

func (b *builder) removePool(name string) {
	b.next.Pools.Delete(name)
	b.next.PoolWritten.Delete(name)
}
