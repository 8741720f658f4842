package nat

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
)

// Attachment is a VIP in a network, as sessions know it by its number.
type Attachment struct {
	VNI        uint32
	VIP        netip.Addr // in that network
	Tenant     uint32     // of the network
	GatewayMAC [6]byte    // from where the network's frames come
}

// ReadAttachments are those of the tables, by number.
func ReadAttachments(tables *bpf.Tables) (map[uint32]Attachment, error) {
	all := map[uint32]Attachment{}
	err := eachAttachment(tables, func(number uint32, row bpf.MuxNatAttachment) {
		all[number] = Attachment{VNI: row.Vni, VIP: bpf.FromAddress(row.Vip), Tenant: row.Tenant, GatewayMAC: row.GatewayMac}
	})
	return all, err
}

// AddAttachments writes those that are new, before packets know them.
func (t *Table) AddAttachments(all map[uint32]Attachment) error {
	live, err := ReadAttachments(t.tables)
	if err != nil {
		return err
	}
	for number, a := range all {
		if _, there := live[number]; there {
			continue
		}
		if err := t.writeAttachment(number, a); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) writeAttachment(number uint32, a Attachment) error {
	row := bpf.MuxNatAttachment{Vni: a.VNI, Tenant: a.Tenant, GatewayMac: a.GatewayMAC}
	if a.VIP.IsValid() {
		row.Vip = bpf.ToAddress(a.VIP)
	}
	if err := t.tables.NATAttachments.Put(number, row); err != nil {
		return fmt.Errorf("write attachment %d: %w", number, err)
	}
	return nil
}

// SetAttachments makes the attachments exactly those, after packets know no others. Sessions of one that is another than
// before end.
func (t *Table) SetAttachments(want map[uint32]Attachment) error {
	live, err := ReadAttachments(t.tables)
	if err != nil {
		return err
	}
	gone := map[uint32]uint32{} // with their tenants
	for number, was := range live {
		if to, kept := want[number]; !kept || to.VNI != was.VNI || to.VIP != was.VIP || to.Tenant != was.Tenant {
			gone[number] = was.Tenant
		}
	}
	if err := t.end(gone); err != nil {
		return err
	}
	for number := range gone {
		if err := t.writeAttachment(number, want[number]); err != nil {
			return err
		}
	}
	for number, a := range want {
		if live[number] != a {
			if err := t.writeAttachment(number, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// end frees the sessions of attachments, which no packet begins any more. Their rows are another's at once: the servers
// that do not know it yet answer a client that does not expect it, and it resets them.
func (t *Table) end(gone map[uint32]uint32) error {
	if len(gone) == 0 {
		return nil
	}
	if err := t.open(); err != nil {
		return err
	}
	if err := abi.Quiesce(); err != nil {
		return err
	}
	for s := range t.sessions.all() {
		if tenant, ends := gone[s.Attachment]; ends && t.sessions.free(&s) {
			t.quotas.Remove(tenant, s.counted)
		}
	}
	return nil
}

func eachAttachment(tables *bpf.Tables, visit func(uint32, bpf.MuxNatAttachment)) error {
	if err := abi.EachRow(tables.NATAttachments, visit); err != nil {
		return fmt.Errorf("read attachments of full NAT: %w", err)
	}
	return nil
}
