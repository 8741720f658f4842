package store

import (
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/model"
)

const prefixPools = root + "pools/"

type poolDocument struct {
	Name       string            `json:"name"`
	Labels     map[string]string `json:"labels,omitempty"`
	Prefixes   []netip.Prefix    `json:"prefixes"`
	Exclusions []netip.Prefix    `json:"exclusions,omitempty"`
	Tenants    []string          `json:"tenants,omitempty"`
	Scrubbers  []model.Scrubber  `json:"scrubbers,omitempty"`
	Blackhole  *model.Diversion  `json:"blackhole,omitempty"`
}

// Record says when and by whom a VIP was written.
type Record struct {
	Created time.Time `json:"created,omitzero"`
	Updated time.Time `json:"updated,omitzero"`
	By      string    `json:"by,omitempty"` // empty: it was not told
}

// recordedVIP is what lies under the key of a VIP.
type recordedVIP struct {
	vipDocument

	Record Record `json:"record,omitzero"`
}

// writtenVIP writes vip as it lies in the store.
func writtenVIP(vip model.VIP, record Record) recordedVIP {
	return recordedVIP{vipToDocument(vip), record}
}

func (b *builder) putPool(pool model.AddressPool, generation model.Generation) {
	b.next.Pools.Set(pool.Name, pool)
	b.next.PoolWritten.Set(pool.Name, generation)
}

func (b *builder) removePool(name string) {
	b.next.Pools.Delete(name)
	b.next.PoolWritten.Delete(name)
}
