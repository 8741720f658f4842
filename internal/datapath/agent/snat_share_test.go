package agent

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// sharer is a workload with source NAT, behind the interface of index 1.
type sharer struct{ dip, vip, tenant string }

// acme has three workloads that leave as two VIPs, globex has one.
var sharers = map[string][]sharer{
	"v4": {
		{"10.1.1.1", "203.0.113.21", "acme"},
		{"10.1.1.2", "203.0.113.21", "acme"},
		{"10.1.1.3", "203.0.113.22", "acme"},
		{"10.1.1.4", "203.0.113.23", "globex"},
	},
	"v6": {
		{"fd01:1::1", "2001:db8:1::21", "acme"},
		{"fd01:1::2", "2001:db8:1::21", "acme"},
		{"fd01:1::3", "2001:db8:1::22", "acme"},
		{"fd01:1::4", "2001:db8:1::23", "globex"},
	},
}

// Sizes of the tables in these tests, and what globex owns of them.
const (
	shareFlows = 512
	globexOwns = shareFlows / 2 / 4
)

func shareRig(t *testing.T, all []sharer, changes ...func(*model.HostSNAT)) *rig {
	t.Helper()
	r := newRig(t, func(spec *ebpf.CollectionSpec) {
		for name, size := range map[string]uint32{"snat_flows": shareFlows, "snat_dests": shareFlows, "snat_ports": 2 * shareFlows, "snat_block_use": 2 * shareFlows} {
			spec.Maps[name].MaxEntries = size
		}
	})
	if err := r.changeSettings(func(s *bpf.AgentAgentSettings) { s.SnatFlows, s.SnatQueueLimit = 1<<18, 4 }); err != nil {
		t.Fatal(err)
	}
	r.share(all, changes...)
	return r
}

// share lists the workloads, each with 512 ports of its own.
func (r *rig) share(all []sharer, changes ...func(*model.HostSNAT)) {
	r.t.Helper()
	var wanted []model.HostSNAT
	for i, s := range all {
		dip := netip.MustParseAddr(s.dip)
		if err := r.objects.Workloads.Put(bpf.ToAddress(dip), uint32(1)); err != nil {
			r.t.Fatal(err)
		}
		w := model.HostSNAT{
			Key: model.SNATKey{VIP: netip.MustParseAddr(s.vip), Address: dip}, Tunnel: dip, Tenant: s.tenant,
			Filtering: model.FilterAddressAndPort, Exhausted: model.ExhaustedReject, MaxPorts: 512,
		}
		for n := range 64 {
			w.Ranges = append(w.Ranges, model.Range(1000+64*i+n))
		}
		for _, change := range changes {
			change(&w)
		}
		wanted = append(wanted, w)
	}
	if err := r.SetSNAT(wanted, nil); err != nil {
		r.t.Fatal(err)
	}
}

// first is the first packet of a connection of the workload to the n-th remote.
func (s sharer) first(protocol model.Protocol, port, n int) pkt.Packet {
	remote := fmt.Sprintf("198.51.%d.%d:443", n/250, 1+n%250)
	if netip.MustParseAddr(s.dip).Is6() {
		remote = fmt.Sprintf("[2001:db8:2::%x]:443", 1+n)
	}
	if protocol == model.UDP {
		return pkt.UDP(own(s.dip, port), remote)
	}
	return pkt.TCP(own(s.dip, port), remote, pkt.SYN)
}

func (s sharer) flow(protocol model.Protocol, p pkt.Packet) snat.Flow {
	return snat.Flow{Protocol: protocol, Workload: netip.AddrPortFrom(p.IP.Source, p.SourcePort), Remote: netip.AddrPortFrom(p.IP.Destination, p.DestinationPort)}
}

// begins counts how many of n connections to four remotes a workload may begin.
func (r *rig) begins(s sharer, protocol model.Protocol, n int) (begun int) {
	r.t.Helper()
	for i := range n {
		switch verdict := r.verdict("from_workload", s.first(protocol, 2000+i/4, i%4)); verdict {
		case "snat_uplink":
			begun++
		case "drop_flows_full":
		default:
			r.t.Fatalf("connection %d of %s is %s", i, s.dip, verdict)
		}
	}
	return begun
}

// A tenant with many workloads and VIPs fills what it may have of the tables; another one's connections begin all the
// same, as many as are its own.
func TestSNATSparesOtherTenants(t *testing.T) {
	for family, all := range sharers {
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			t.Run(fmt.Sprintf("%s %s", protocol, family), func(t *testing.T) {
				r := shareRig(t, all)
				greedy := 0
				for _, s := range all[:3] {
					greedy += r.begins(s, protocol, 300)
				}
				if want := shareFlows - globexOwns; greedy != want {
					t.Errorf("acme began %d connections, not %d", greedy, want)
				}
				if got := r.begins(all[3], protocol, globexOwns); got != globexOwns {
					t.Errorf("globex began %d connections of %d that it may have in any case", got, globexOwns)
				}
				if got := r.begins(all[3], protocol, 80) - globexOwns; got > 0 {
					t.Errorf("globex began %d more, of which there are none", got)
				}
				r.wantCounts()
			})
		}
	}
}

// Alone on a host, a tenant has whole tables.
func TestSNATAloneHasAll(t *testing.T) {
	r := shareRig(t, sharers["v4"][:3])
	begun := 0
	for _, s := range sharers["v4"][:3] {
		begun += r.begins(s, model.UDP, 250)
	}
	if begun != shareFlows {
		t.Errorf("%d connections began, not %d", begun, shareFlows)
	}
	r.wantCounts()
}

// What speaks to more addresses than tables hold, whose connections are over, leaves others their part of all tables:
// destinations and the use of ports, and what a mapping that is for all lets in.
func TestSNATManyDestinations(t *testing.T) {
	for family, all := range sharers {
		for _, f := range []model.Filtering{model.FilterAddressAndPort, model.FilterAddress} {
			t.Run(fmt.Sprintf("%s %s", f, family), func(t *testing.T) {
				r := shareRig(t, all, filtering(f))
				refused := 0
				for i := range 4 * shareFlows {
					p := all[0].first(model.UDP, 2000, i)
					switch verdict := r.verdict("from_workload", p); verdict {
					case "snat_uplink":
						if err := r.EndFlow(all[0].flow(model.UDP, p)); err != nil {
							t.Fatal(err)
						}
					case "drop_flows_full":
						refused++
					default:
						t.Fatalf("connection %d is %s", i, verdict)
					}
				}
				if refused == 0 {
					t.Fatal("the tables hold all of it")
				}
				for i := range globexOwns / 2 {
					if got := r.verdict("from_workload", all[3].first(model.UDP, 2000+i, i)); got != "snat_uplink" {
						t.Fatalf("connection %d of globex is %s", i, got)
					}
				}
				r.wantCounts()
				r.sweepAll()
				r.wantNothing()
			})
		}
	}
}

// sweepAll ends what is idle, which is all.
func (r *rig) sweepAll() session.SNATReport {
	r.t.Helper()
	sessionReport, err := r.SweepSNAT(session.Now()+24*time.Hour, session.DefaultTimeouts())
	if err != nil {
		r.t.Fatal(err)
	}
	return sessionReport
}

// What two tenants borrow they share by weight, once it does not do for both; nothing that lives is ended for it.
func TestSNATBorrowersShare(t *testing.T) {
	all := []sharer{sharers["v4"][0], sharers["v4"][3]}
	r := shareRig(t, all)
	const owns = shareFlows / 4
	if got := r.begins(all[0], model.UDP, shareFlows); got != shareFlows-owns {
		t.Fatalf("acme began %d", got)
	}
	if got := r.begins(all[1], model.UDP, shareFlows); got != owns {
		t.Fatalf("globex began %d", got)
	}
	sessionReport, err := r.SweepSNAT(session.Now(), session.DefaultTimeouts())
	if err != nil || sessionReport.Live != shareFlows {
		t.Fatalf("%d live (%v)", sessionReport.Live, err)
	}
	if len(sessionReport.Refused) != 2 || len(sessionReport.Tenants) != 2 || sessionReport.Tenants[0].Limit != 2*owns {
		t.Errorf("the session report is %+v", sessionReport)
	}
	for i := range owns { // acme may not take again what it gives back: it has more than its part
		p := all[0].first(model.UDP, 2000+i/4, i%4)
		if err := r.EndFlow(all[0].flow(model.UDP, p)); err != nil {
			t.Fatal(err)
		}
		if got := r.verdict("from_workload", all[0].first(model.UDP, 40_000+i, 0)); got != "drop_flows_full" {
			t.Fatalf("a new connection of acme after %d is %s", i, got)
		}
	}
	if got := r.begins(all[1], model.UDP, 2*shareFlows) - owns; got != owns {
		t.Errorf("globex began %d of what acme gave back, not %d", got, owns)
	}
	r.wantCounts()
}

// Counts are those of the tables, whatever begins and ends on two CPUs, and nothing is left when all has ended.
func TestSNATCounts(t *testing.T) {
	for _, f := range []model.Filtering{model.FilterAddressAndPort, model.FilterAddress} {
		t.Run(string(f), func(t *testing.T) {
			all := sharers["v4"]
			r := shareRig(t, all, filtering(f), func(s *model.HostSNAT) { s.Ranges = s.Ranges[:1] })
			program := r.program("from_workload")
			var both sync.WaitGroup
			for cpu := range 2 {
				both.Go(func() {
					random := rand.New(rand.NewPCG(7, uint64(cpu)))
					for range scale(6000, 200_000) {
						s := all[random.IntN(len(all))]
						p := s.first(model.TCP, 2000+random.IntN(40), random.IntN(30))
						var err error
						switch what := random.IntN(200); {
						case what == 0 && cpu == 0:
							err = r.SweepRows(&bpf.AgentSnatSweepCall{Now: uint64(session.Now() + time.Hour), Udp: 1})
						case what < 3 && cpu == 0: // as the sweep, by one at a time
							_, _, err = r.AssignPort(s.flow(model.TCP, p))
						case what < 12:
							err = r.EndFlow(s.flow(model.TCP, p))
						default:
							if what%3 == 0 {
								p.Flags = pkt.RST
							}
							_, err = program.Run(ebpfOptions(p.Frame(), make([]byte, 256)))
						}
						if err != nil && !errors.Is(err, snat.ErrFlowGone) {
							t.Error(err)
							return
						}
					}
				})
			}
			both.Wait()
			r.wantCounts()
			r.sweepAll()
			r.wantCounts()
			r.wantNothing()
		})
	}
}

// wantCounts holds that all counts are those of the tables.
func (r *rig) wantCounts() {
	r.t.Helper()
	rows := map[uint32]*[snat.Tables]int{}
	note := func(workload uint32, table int) {
		if rows[workload] == nil {
			rows[workload] = &[snat.Tables]int{}
		}
		rows[workload][table]++
	}
	check(r.t, abi.EachBatched(r.objects.SnatFlows, func(_ bpf.AgentSessionKey, row bpf.AgentSnatFlow) { note(row.Workload, 0) }))
	check(r.t, abi.EachBatched(r.objects.SnatPorts, func(_ bpf.AgentSnatPortKey, row bpf.AgentSnatPort) { note(row.Workload, 1) }))
	check(r.t, abi.EachBatched(r.objects.SnatDests, func(key bpf.AgentSnatTargetKey, _ bpf.AgentSnatTarget) { note(key.Workload, 2) }))
	check(r.t, abi.EachBatched(r.objects.SnatBlockUse, func(key bpf.AgentSnatUsedKey, _ uint64) { note(key.Target.Workload, 3) }))
	a, err := r.Shares.Accounts()
	check(r.t, err)
	for number, state := range a.States {
		var want [snat.Tables]int
		if found := rows[uint32(number)]; found != nil {
			want = *found
		}
		for table, n := range state.Rows {
			if int(int32(n)) != want[table] {
				r.t.Errorf("workload %d has %d rows of table %d, and %d are counted", number, want[table], table, int32(n))
			}
			a.States[number].Found[table] = n
		}
	}
	if off := a.Off(); len(off) != 0 {
		r.t.Errorf("counts are off: %v", off)
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantNothing holds that no row is left, and none counted.
func (r *rig) wantNothing() {
	r.t.Helper()
	a, err := r.Shares.Accounts()
	check(r.t, err)
	for number, state := range a.States {
		if state.Rows != [snat.Tables]uint32{} {
			r.t.Errorf("workload %d has rows left: %v", number, state.Rows)
		}
	}
	for number, row := range a.Tenants {
		if row.Rows != [snat.Tables]uint32{} {
			r.t.Errorf("tenant %d has rows left: %v", number, row.Rows)
		}
	}
	r.wantCounts()
}

// restarted is the data plane as a later process finds it.
func (r *rig) restarted() *rig {
	r.t.Helper()
	after := &rig{t: r.t, Datapath: newDatapath(r.config, nil)}
	after.objects, after.Datapath.verdicts = r.objects, r.Datapath.verdicts
	for _, err := range []error{after.numbers.Read(), after.Rules.Read(), after.Translator.Read()} {
		check(r.t, err)
	}
	return after
}

// A restart of the agent keeps what tenants have and may have.
func TestSNATCountsOverARestart(t *testing.T) {
	all := sharers["v4"]
	r := shareRig(t, all)
	for _, s := range all {
		r.begins(s, model.TCP, 40)
	}
	before, err := r.Shares.Accounts()
	check(t, err)
	r = r.restarted()
	r.wantCounts()
	after, err := r.Shares.Accounts()
	check(t, err)
	for number, row := range before.Tenants {
		if after.Tenants[number] != row {
			t.Errorf("tenant %d was %+v, and is %+v", number, row, after.Tenants[number])
		}
	}
	r.share(all)
	r.wantCounts()
	r.sweepAll()
	r.wantNothing()
}

// What is off is mended when two sweeps have found the same; a workload that goes takes its rows with it.
func TestSNATCountsAreMended(t *testing.T) {
	all := sharers["v4"]
	r := shareRig(t, all)
	for _, s := range all {
		r.begins(s, model.TCP, 40)
	}
	check(t, bpf.Call(r.objects.SnatReconcile, &bpf.AgentSnatReconcileCall{Workload: 2, Table: 0, Off: 5}))
	check(t, bpf.Call(r.objects.SnatShare, &bpf.AgentSnatShareCall{Tenant: 1, Table: 1, Guaranteed: 3, Limit: 9, Off: -70}))
	for range 4 {
		_, err := r.SweepSNAT(session.Now(), session.DefaultTimeouts())
		check(t, err)
	}
	r.wantCounts()
	r.share(all[1:])
	r.wantCounts()
	moved := append([]sharer(nil), all...)
	moved[2].tenant, moved[3].tenant = "globex", "default"
	r.share(moved)
	r.wantCounts()
	r.share(nil)
	r.wantNothing()
}
