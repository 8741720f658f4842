package trust

import (
	"fmt"

	"github.com/weirlb/weir/internal/model"
)

// Role is what a user may do. Each one includes those before it.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // see
	Operator Role = "operator" // change VIPs
	Admin    Role = "admin"    // change who may do what
)

// AllTenants stands for all tenants, and for what belongs to none: nodes, pools, the cluster itself.
const AllTenants = "*"

func (r Role) rank() int {
	switch r {
	case Viewer:
		return 1
	case Operator:
		return 2
	case Admin:
		return 3
	}
	return 0
}

// Binding gives a role in one tenant, or in AllTenants.
type Binding struct {
	Tenant string `json:"tenant"`
	Role   Role   `json:"role"`
}

// String is "operator of shop".
func (b Binding) String() string { return string(b.Role) + " of " + b.Tenant }

// Validate says what is wrong with b.
func (b Binding) Validate() error {
	if b.Role.rank() == 0 {
		return &model.FieldError{Field: "role", Reason: fmt.Sprintf("must be viewer, operator or admin, is %.40q", b.Role)}
	}
	if b.Tenant != AllTenants && !model.ValidName(b.Tenant) {
		return &model.FieldError{Field: "tenant", Reason: fmt.Sprintf("must be the name of a tenant or *, is %.70q", b.Tenant)}
	}
	return nil
}

// May says whether i has the role, or one that includes it, in the tenant; AllTenants asks for the
// whole cluster.
func (i Identity) May(role Role, tenant string) bool {
	if i.Method == Insecure || i.Kind == Manager {
		return true
	}
	for _, b := range i.Bindings {
		if (b.Tenant == AllTenants || b.Tenant == tenant) && b.Role.rank() >= role.rank() {
			return true
		}
	}
	return false
}

// Tenants are those in which i has the role, if it does not have it everywhere.
func (i Identity) Tenants(role Role) (tenants []string, everywhere bool) {
	if i.May(role, AllTenants) {
		return nil, true
	}
	for _, b := range i.Bindings {
		if b.Role.rank() >= role.rank() {
			tenants = append(tenants, b.Tenant)
		}
	}
	return tenants, false
}

// Share is who shares what there is of a manager with others as one: the users of a tenant together, each other caller
// by itself.
func (i Identity) Share() string {
	if i.Kind != User || len(i.Bindings) == 0 {
		return i.String()
	}
	tenant := i.Bindings[0].Tenant
	for _, b := range i.Bindings {
		if b.Tenant != tenant || b.Tenant == AllTenants {
			return i.String()
		}
	}
	return "tenant/" + tenant
}
