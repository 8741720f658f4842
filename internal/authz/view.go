package authz

import (
	"cmp"
	"context"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/trust"
)

// Redact takes from an answer what a caller who is bound to tenants may not see of the cluster.
func Redact(caller trust.Identity, response any) {
	if caller.May(trust.Viewer, trust.AllTenants) {
		return
	}
	switch r := response.(type) {
	case *weirv1.ListNodesResponse:
		r.Nodes = redactedNodes(r.GetNodes())
	case *weirv1.GetNodeResponse:
		r.Node = RedactedNode(r.GetNode())
	case *weirv1.ListAddressPoolsResponse:
		for _, pool := range r.GetPools() {
			redactPool(caller, pool)
		}
	case *weirv1.GetAddressPoolResponse:
		redactPool(caller, r.GetPool())
	case *weirv1.GetStatusResponse:
		r.Nodes = redactedNodes(r.GetNodes())
	}
}

// redactPool leaves those of the pool's tenants that the caller may see.
func redactPool(caller trust.Identity, pool *weirv1.AddressPool) {
	var seen []string // the pool's own list is the State's
	for _, tenant := range pool.GetTenants() {
		if caller.May(trust.Viewer, tenant) {
			seen = append(seen, tenant)
		}
	}
	pool.Tenants = seen
}

func redactedNodes(nodes []*weirv1.Node) []*weirv1.Node {
	redacted := make([]*weirv1.Node, 0, len(nodes))
	for _, n := range nodes {
		redacted = append(redacted, RedactedNode(n))
	}
	return redacted
}

// RedactedNode is what callers who are bound to tenants see of a node, all of them the same: whether a change has reached it.
// The node stays as it is, for others.
func RedactedNode(n *weirv1.Node) *weirv1.Node {
	was := n.GetStatus()
	redacted := &weirv1.Node{
		Name: n.GetName(), Role: n.GetRole(), Drained: n.GetDrained(),
		Status: &weirv1.NodeStatus{Connected: was.GetConnected(), Generation: was.GetGeneration(), LastSeen: was.GetLastSeen()},
	}
	if r := was.GetRejection(); r != nil {
		redacted.Status.Rejection = &weirv1.Rejection{Generation: r.GetGeneration(), Reason: "an operator of the cluster sees why"}
	}
	return redacted
}

// CanView says whether the caller may see what belongs to the tenant. A context without a caller is of this
// program itself.
func CanView(ctx context.Context, tenant string) bool {
	i := trust.FromContext(ctx)
	return i.Anonymous() || i.May(trust.Viewer, cmp.Or(tenant, trust.AllTenants))
}

// CanViewVIP is CanView, of VIPs.
func CanViewVIP(ctx context.Context) func(model.VIP) bool {
	return func(vip model.VIP) bool { return CanView(ctx, vip.Tenant) }
}

// CanViewPool says whether the caller may see the pool: one of its tenants, or any if it is for all.
func CanViewPool(ctx context.Context, p model.AddressPool) bool {
	if len(p.Tenants) == 0 {
		return true
	}
	for _, tenant := range p.Tenants {
		if CanView(ctx, tenant) {
			return true
		}
	}
	return false
}

// CanViewPrefixList says whether the caller may see the list: one of its tenants, or that of none.
func CanViewPrefixList(ctx context.Context, list model.PrefixList) bool {
	return list.Tenant == "" || CanView(ctx, list.Tenant)
}
