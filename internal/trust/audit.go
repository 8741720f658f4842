package trust

import (
	"net/netip"
	"time"
)

// AuditEntry says what somebody changed, or was refused.
type AuditEntry struct {
	Time      time.Time `json:"time"`
	Identity  string    `json:"identity"`
	From      string    `json:"from"`
	Procedure string    `json:"procedure"`
	Subject   string    `json:"subject,omitempty"` // "vip/shop"
	Result    string    `json:"result"`            // "ok", or the code of the refusal
	Reason    string    `json:"reason,omitempty"`
	Manager   string    `json:"manager"`
	// Refused entries are kept apart, so that strangers can't push out what was changed.
	Refused bool `json:"refused,omitempty"`
}

// Principal is a mux, host, manager or user that got a credential of the cluster.
type Principal struct {
	Kind    Kind      `json:"kind"`
	Name    string    `json:"name"`
	Issue   uint32    `json:"issue"` // the least that is in force
	Joined  time.Time `json:"joined"`
	Revoked bool      `json:"revoked,omitempty"` // and not joined since
	Use     string    `json:"use,omitempty"`     // hash of the key that joined last; empty: not known
	// Addresses are prefixes that those of a node lie in; none: any that is nobody else's.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
}

// Key names a principal: "mux/mux1".
func (m Principal) Key() string { return string(m.Kind) + "/" + m.Name }
