package agent

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// Remotes that a workload has not sent to fill half of what it may have, and half of what is its tenant's own. The rest
// is for connections that workloads begin.
func TestSNATUnsolicitedFlows(t *testing.T) {
	const most = 40
	bounds := map[string]func(*rig) error{
		"workload": func(r *rig) error {
			return r.changeSettings(func(s *bpf.AgentAgentSettings) { s.SnatFlows = most })
		},
		"tenant, flows": func(r *rig) error { return r.shareOf(crawler4, crawler6, bpf.AgentSnatTableSNAT_TABLE_FLOWS, most) },
		"tenant, ports": func(r *rig) error { return r.shareOf(crawler4, crawler6, bpf.AgentSnatTableSNAT_TABLE_PORTS, most) },
	}
	for name, bound := range bounds {
		for _, dip := range []string{native4, native6} {
			for _, f := range []model.Filtering{model.FilterNone, model.FilterAddress} {
				t.Run(fmt.Sprintf("%s of %s, %s", name, dip, f), func(t *testing.T) {
					r := snatRig(t, filtering(f))
					if err := bound(r); err != nil {
						t.Fatal(err)
					}
					r.fillUnsolicited(dip, most)
				})
			}
		}
	}
}

// shareOf gives the tenants of two VIPs so many rows of a table for their own.
func (r *rig) shareOf(vip4, vip6 string, table bpf.AgentSnatTable, own int) error {
	for _, vip := range []string{vip4, vip6} {
		c := bpf.AgentSnatShareCall{Tenant: r.numbers.Of(netip.MustParseAddr(vip)), Table: uint32(table), Guaranteed: uint32(own), Limit: 2 * uint32(own)}
		if err := bpf.Call(r.objects.SnatShare, &c); err != nil {
			return err
		}
	}
	return nil
}

// fillUnsolicited has remotes send to a workload's mapping, of ports that it has not sent to, and then the workload to
// others.
func (r *rig) fillUnsolicited(dip string, most int) {
	r.t.Helper()
	remote := netip.MustParseAddrPort(remote4)
	if netip.MustParseAddr(dip).Is6() {
		remote = netip.MustParseAddrPort(remote6)
	}
	out := r.leaves(dip, pkt.UDP(own(dip, 50000), remote.String()))
	admitted, refused := 0, 0
	for i := range 2 * most {
		strange := answered(out, dip, 0, from(netip.AddrPortFrom(remote.Addr(), uint16(10000+i)).String()))
		switch got := r.verdict("from_uplink", strange); got {
		case "deliver_native":
			admitted++
		case "drop_unsolicited_full":
			refused++
		default:
			r.t.Fatalf("from a remote that it has not sent to: verdict is %s", got)
		}
	}
	if admitted == 0 || admitted > most/2 || refused == 0 {
		r.t.Errorf("of %d remotes %d were let in, and %d refused", 2*most, admitted, refused)
	}
	for i := range most / 4 {
		r.leaves(dip, pkt.UDP(own(dip, 50000), netip.AddrPortFrom(remote.Addr(), uint16(20000+i)).String()))
	}
	if got := r.verdict("from_uplink", answered(out, dip, 0)); got != "deliver_native" {
		r.t.Errorf("the answer of a remote that it has sent to: verdict is %s", got)
	}
}
