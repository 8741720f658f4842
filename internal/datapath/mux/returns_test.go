package mux

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// clientsOfOneSet are clients of vip4 whose flows the flow table keeps in one set.
func clientsOfOneSet(n int) (clients []string) {
	key := testSettings().HashKey
	var set uint64
	for i := 0; len(clients) < n; i++ {
		from := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), uint16(1024+i))
		hash := key.Sum64(model.Flow{Protocol: model.TCP, Source: from, Destination: netip.MustParseAddrPort(vip4)})
		if i == 0 {
			set = hash % uint64(testSizes.FlowSets)
		}
		if hash%uint64(testSizes.FlowSets) == set {
			clients = append(clients, from.String())
		}
		if from.Port() == 65535 {
			panic("too few ports for so many flows of one set")
		}
	}
	return clients
}

// expireFlows has all remembered flows be silent for so long that they expire.
func expireFlows(t *testing.T, d *Datapath) {
	t.Helper()
	m, err := flow.Map(&d.tables)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for i := range m.Sets {
		for j := range m.Sets[i].Cells {
			m.Sets[i].Cells[j].Expires -= 1 << 24
		}
	}
	wipe[bpf.MuxFlowFilter](t, d.tables.FlowFilter) // whose epoch is over, too
}

// Flows that pause for longer than they are remembered and come back are remembered anew, in whichever cell of their
// set, and found there: by their packets and by ICMP errors about them.
func TestFlowsThatComeBackAreRecalled(t *testing.T) {
	const flows, rounds = 6, 20
	for _, sweeps := range []bool{false, true} {
		t.Run(map[bool]string{false: "expired", true: "swept"}[sweeps], func(t *testing.T) {
			d := newFilled(t, only(1))
			clients, random := clientsOfOneSet(flows), rand.New(rand.NewPCG(3, 4))
			for range rounds {
				expireFlows(t, d)
				if sweeps {
					sweepFlows(t, d)
				}
				before := verdicts(t, d)
				for _, i := range random.Perm(flows) {
					for range 3 {
						wantChosen(t, d, pkt.TCP(clients[i], vip4, pkt.ACK), first)
					}
				}
				want := map[string]uint64{"forward_bucket": flows, "forward_flow": 2 * flows}
				if diff := cmp.Diff(want, looked(difference(before, verdicts(t, d)))); diff != "" {
					t.Fatalf("flows that came back (-want +got):\n%s", diff)
				}
			}
			wantExact(t, d)
			apply(t, d, only(2))
			before := verdicts(t, d)
			for _, client := range clients {
				wantChosen(t, d, pkt.TCP(client, vip4, pkt.ACK), first)
				run(t, d, icmpError(vip4, client, 28))
			}
			want := map[string]uint64{"forward_flow": flows, "forward_icmp": flows}
			if diff := cmp.Diff(want, difference(before, verdicts(t, d))); diff != "" {
				t.Errorf("flows whose bucket moved, and errors about them (-want +got):\n%s", diff)
			}
		})
	}
}
