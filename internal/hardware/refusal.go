package hardware

import (
	"fmt"
	"net/netip"
)

// TableName names a table of a switch, or a bound of a group.
type TableName string

// What may be full.
const (
	Hosts   TableName = "hosts"
	ECMP    TableName = "ecmp"
	Tunnels TableName = "tunnels"
	Members TableName = "members" // of one group
)

// Refusal is the error of an entry that a switch does not take.
type Refusal struct {
	VIP        netip.Addr
	Table      TableName // empty: another reason
	Need, Free uint32    // rows, if Table is set
	Reason     string    // if Table is not
}

func (r *Refusal) Error() string {
	if r.Table == "" {
		return fmt.Sprintf("the switch does not take %s: %s", r.VIP, r.Reason)
	}
	return fmt.Sprintf("the switch does not take %s: it needs %d rows of table %s, which has room for %d", r.VIP, r.Need, r.Table, r.Free)
}
