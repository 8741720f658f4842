package authz

import (
	"testing"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/trust"
)

// Every procedure of every service has its rule, and every rule its procedure.
func TestEveryProcedureHasARule(t *testing.T) {
	left := map[string]bool{}
	for procedure := range Procedures() {
		left[procedure] = true
	}
	for _, service := range limits.Services() {
		for i := range service.Methods().Len() {
			procedure := "/" + string(service.FullName()) + "/" + string(service.Methods().Get(i).Name())
			if !left[procedure] {
				t.Errorf("%s has no rule: nobody may call it", procedure)
			}
			delete(left, procedure)
		}
	}
	for procedure := range left {
		t.Errorf("there is a rule for %s, which is not there", procedure)
	}
}

// Callers without a valid credential may join, and nothing else.
func TestAnonymousCallersAreRefused(t *testing.T) {
	for procedure := range Procedures() {
		wanted := connect.CodeUnauthenticated
		if AllowsAnonymous(procedure) {
			wanted = 0
		}
		for what, anonymous := range map[string]trust.Identity{
			"no credential": {}, "a revoked one": {Reason: "was revoked", From: "192.0.2.7:99"},
		} {
			err := Permit(anonymous, nil, procedure, nil)
			if err == nil && wanted != 0 || err != nil && connect.CodeOf(err) != wanted {
				t.Errorf("%s, with %s: %v", procedure, what, err)
			}
		}
	}
	if err := Permit(trust.Identity{}, nil, "/weir.v1.WeirService/None", nil); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a procedure without a rule: %v", err)
	}
}
