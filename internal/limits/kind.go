package limits

import "github.com/weirlb/weir/internal/trust"

// KindOf is what the table of bounds calls a caller.
func KindOf(caller trust.Identity) Kind {
	switch caller.Kind {
	case trust.Mux:
		return Mux
	case trust.Host:
		return Host
	case trust.Switch:
		return Switch
	case trust.Manager:
		return Manager
	case trust.User:
		if caller.May(trust.Viewer, trust.AllTenants) {
			return Operator
		}
		return User
	}
	return Unauthenticated
}
