package overlay

import (
	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/overlay/quota"
)

// Tenants is what tenants have and may have of the session table.
type Tenants struct {
	quotas quota.Quotas
	raw    [][]byte
}

func mapTenants(m *ebpf.Map) (*Tenants, error) {
	t := &Tenants{}
	var err error
	t.quotas, err = abi.MapRows[quota.Row](&t.raw, m)
	return t, err
}

// SetTenant sets how many sessions a tenant has of its own and at most, and how many half-open ones. Of tenant 0 own is
// what all may borrow together.
func (t *Tenants) SetTenant(number, own, most, halfOpen uint32) error {
	return t.quotas.Set(number, own, most, halfOpen)
}

// Usage reads a tenant's counts; of tenant 0, what all have borrowed.
func (t *Tenants) Usage(number uint32) quota.Usage { return t.quotas.Usage(number) }
