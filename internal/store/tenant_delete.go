package store

import (
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// Tenants are part of Trust, and limit the desired state. So that each is decided by the other as it is when the
// transaction commits, what users change is written only if keyspace.TenantsVersion is that of the Trust from before the decision,
// and tenants, which must have nothing when they go, are deleted in the order of the changes of the desired state.

// tenantOperations adds the deletions of tenants.
func (c Change) tenantOperations(ops []clientv3.Op, errs []error) ([]clientv3.Op, []error) {
	if len(c.DeleteTenants) == 0 {
		return ops, errs
	}
	value, err := codec.Encode(struct{}{})
	ops = append(ops, clientv3.OpPut(keyspace.Trust, value), clientv3.OpPut(keyspace.TenantsVersion, value))
	for _, name := range c.DeleteTenants {
		ops = append(ops, clientv3.OpDelete(keyspace.Tenants+name))
	}
	return ops, append(errs, err)
}

// isOfUsers says whether what was folded holds a change of what users want. Others do not depend on tenants.
func (f *folded) isOfUsers() bool {
	return slices.ContainsFunc(f.writes, func(w *write) bool { return w.priority == Configuration })
}

// deletesTenants says whether Trust is written too.
func (f *folded) deletesTenants() bool {
	_, writes := f.ops[keyspace.Trust]
	return writes
}

// trustConditions hold that tenants are those by which was decided and, if some are deleted, that no user came to them.
func (f *folded) trustConditions() []clientv3.Cmp {
	var all []clientv3.Cmp
	if f.isOfUsers() {
		all = append(all, f.trusted.CompareTenants())
	}
	if f.deletesTenants() {
		all = append(all, f.trusted.CompareVersion())
	}
	return all
}
