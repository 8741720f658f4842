package agent

import (
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/pkt"
)

// An address of the host that is listed for source NAT, but is no workload here: what the host itself sends from it is
// the host's own and leaves as it is. A workload that sends from it is refused.
func TestTheHostItselfSendsAsItself(t *testing.T) {
	for _, c := range []struct{ dip, remote string }{{native4, remote4}, {native6, remote6}} {
		r := snatRig(t)
		if err := r.objects.Workloads.Delete(bpf.ToAddress(netip.MustParseAddr(c.dip))); err != nil {
			t.Fatal(err)
		}
		for _, packet := range []pkt.Packet{
			pkt.TCP(own(c.dip, 50000), c.remote, pkt.SYN, pkt.MSS(1460)), pkt.TCP(own(c.dip, 22), c.remote, pkt.ACK), pkt.UDP(own(c.dip, 50000), c.remote),
		} {
			r.check("the host's", step{program: "to_uplink", in: packet.Frame(), verdict: "pass_no_session", want: &packet})
			r.check("a workload's", step{program: "from_workload", in: packet.Frame(), verdict: "drop_spoofed_source"})
		}
	}
}
