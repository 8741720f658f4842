package mux

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// claimant is a VIP of a test that divides the flow table.
type claimant struct {
	vip, tenant string
	workloads   int
	limit       uint32 // 0: the mux's
}

func (c claimant) endpoint(i int) model.MuxEndpoint {
	var tunnels []string
	for j := range c.workloads {
		tunnels = append(tunnels, fmt.Sprintf("10.0.%d.%d", i+1, j+1))
	}
	e := newEndpoint(c.vip, model.TCP, tunnels...)
	e.Tenant, e.FlowLimit = c.tenant, c.limit
	return e
}

// newDivided has the table divided among the claimants.
func newDivided(t *testing.T, sizes bpf.Sizes, claimants ...claimant) *Datapath {
	t.Helper()
	var endpoints []model.MuxEndpoint
	for i, c := range claimants {
		endpoints = append(endpoints, c.endpoint(i))
	}
	d := newFilledOf(t, sizes, endpoints...)
	sweepFlows(t, d)
	return d
}

// vipsHave is what VIPs have of the flow table.
func vipsHave(t *testing.T, d *Datapath) map[string]VIPUsage {
	t.Helper()
	usage, err := d.Usage()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]VIPUsage{}
	for _, v := range usage.VIPs {
		for key := range d.endpoints.Live {
			if key.VIP == v.VIP {
				all[netip.AddrPortFrom(key.VIP, key.Port).String()] = v
			}
		}
	}
	return all
}

// wholeTable is no limit.
const wholeTable = 1 << 13

// TestWhoComesLateGetsItsPart has two tenants fill the table with flows that are trusted: a third one's are remembered
// and trusted all the same, up to its own part, and the others keep the rest. So is a VIP of no tenant.
func TestWhoComesLateGetsItsPart(t *testing.T) {
	own := flow.OwnFlows(testSizes)
	for name, w := range tenantWorlds() {
		for _, tenant := range []string{"late", "", model.DefaultTenant} {
			t.Run(name+" "+tenant, func(t *testing.T) {
				d := newDivided(t, testSizes, claimant{w.many[0], "a", 4, wholeTable}, claimant{w.many[1], "b", 2, wholeTable},
					claimant{w.one, tenant, 2, wholeTable})
				w.send(t, d, w.many[0], 0x0b000000, 8000, 2)
				w.send(t, d, w.many[1], 0x0c000000, 8000, 2)
				if first := vipsHave(t, d)[w.many[1]]; first.Guaranteed != uint32(own/4) || first.Flows.Trusted < uint64(own/4) {
					t.Errorf("who comes second has %+v", first)
				}
				w.send(t, d, w.one, 0x66000000, own/4, 3)
				have := vipsHave(t, d)
				if late := have[w.one]; late.Guaranteed != uint32(own/4) || late.Flows.Trusted < uint64(own/4)*98/100 {
					t.Errorf("who comes late has %+v", late)
				}
				all := uint64(0)
				for i, part := range []int{2, 4} {
					v := have[w.many[i]]
					if v.Flows.Trusted < uint64(own/part) {
						t.Errorf("who was there has %+v", v)
					}
					all += v.Flows.Trusted
				}
				if room := uint64(testSizes.FlowSets) * 6; all+have[w.one].Flows.Trusted < room*95/100 {
					t.Errorf("of room for %d trusted flows those before have %d, who comes late %+v", room, all, have[w.one])
				}
				tenantsHave(t, d)
				wantExact(t, d)
			})
		}
	}
}

// TestPartsAreThereWhenAllAreTaken has the others have just what is their own, which nothing takes: whoever comes then
// finds places for most of its own all the same, but for sets where they fall badly.
func TestPartsAreThereWhenAllAreTaken(t *testing.T) {
	own := flow.OwnFlows(testSizes)
	for name, w := range tenantWorlds() {
		for _, others := range []int{3, 11} {
			t.Run(fmt.Sprintf("%s %d", name, others), func(t *testing.T) {
				d := newDivided(t, testSizes, claimant{w.many[0], "a", others, wholeTable}, claimant{w.one, "late", 1, wholeTable})
				w.send(t, d, w.many[0], 0x0b000000, own*others/(others+1), 2)
				w.send(t, d, w.many[0], 0x4d000000, 2000, 1)
				before := tenantsHave(t, d)["a"]
				part := own / (others + 1)
				w.send(t, d, w.one, 0x66000000, part, 3)
				have := tenantsHave(t, d)
				if late := have["late"]; late.Flows.Trusted < uint64(part)*17/20 {
					t.Errorf("who comes late has %+v", late)
				}
				if have["a"].Flows.Trusted != before.Flows.Trusted {
					t.Errorf("who had no more than its own has %+v, had %+v", have["a"], before)
				}
			})
		}
	}
}

// TestIdlePartsAreBorrowed has one tenant of a small part alone have flows: it may have as many as its limit says.
func TestIdlePartsAreBorrowed(t *testing.T) {
	for name, w := range tenantWorlds() {
		t.Run(name, func(t *testing.T) {
			d := newDivided(t, testSizes, claimant{w.many[0], "a", 1, 0}, claimant{w.one, "idle", 9, 0})
			w.send(t, d, w.many[0], 0x0b000000, 3000, 2)
			if a := tenantsHave(t, d)["a"]; a.Guaranteed != uint32(flow.OwnFlows(testSizes)/10) || a.Flows.Trusted != uint64(a.Limit) {
				t.Errorf("who is alone has %+v", a)
			}
			w.send(t, d, w.one, 0x66000000, 2000, 2)
			idle := tenantsHave(t, d)["idle"]
			if idle.Guaranteed != idle.Limit {
				t.Errorf("who has most workloads owns %+v", idle)
			}
			if idle.Flows.Trusted < 2000*99/100 {
				t.Errorf("who wakes up has %+v", idle)
			}
		})
	}
}

// TestVIPsDivideATenantsPart has one VIP of a tenant take all that the tenant may have: another VIP of it gets its part
// of that.
func TestVIPsDivideATenantsPart(t *testing.T) {
	for name, w := range tenantWorlds() {
		t.Run(name, func(t *testing.T) {
			d := newDivided(t, testSizes, claimant{w.many[0], "a", 1, 0}, claimant{w.many[1], "a", 1, 0}, claimant{w.one, "b", 2, 0})
			w.send(t, d, w.many[0], 0x0b000000, 3000, 2)
			w.send(t, d, w.many[1], 0x0c000000, 3000, 2)
			have := vipsHave(t, d)
			if second := have[w.many[1]]; second.Guaranteed != uint32(flow.OwnFlows(testSizes)/4) || second.Flows.Trusted < uint64(second.Guaranteed) {
				t.Errorf("the second VIP has %+v", second)
			}
			if a := tenantsHave(t, d)["a"]; a.Flows.Trusted != uint64(a.Limit) {
				t.Errorf("their tenant has %+v", a)
			}
			w.send(t, d, w.many[0], 0x4d000000, 3000, 2)
			if second := vipsHave(t, d)[w.many[1]]; second.Flows.Trusted != have[w.many[1]].Flows.Trusted {
				t.Errorf("the second VIP has %+v, and had %+v before one that has more than its part wanted more", second, have[w.many[1]])
			}
			wantExact(t, d)
		})
	}
}

// TestWhatExpiresFirstMakesWay has two tenants with more than their parts: a third takes what would expire first.
func TestWhatExpiresFirstMakesWay(t *testing.T) {
	for name, w := range tenantWorlds() {
		t.Run(name, func(t *testing.T) {
			claimants := []claimant{{w.many[0], "brief", 2, wholeTable}, {w.many[1], "long", 1, wholeTable}, {w.one, "late", 1, wholeTable}}
			d := newDivided(t, testSizes, claimants...)
			for i, idle := range []time.Duration{time.Minute, time.Hour} {
				e := claimants[i].endpoint(i)
				e.IdleTimeout = idle
				apply(t, d, e)
				w.send(t, d, claimants[i].vip, 0x0b000000+uint32(i)<<24, 2900, 2)
			}
			before := tenantsHave(t, d)
			w.send(t, d, w.one, 0x66000000, flow.OwnFlows(testSizes)/4, 2)
			have := tenantsHave(t, d)
			brief, long := before["brief"].Flows.Trusted-have["brief"].Flows.Trusted, before["long"].Flows.Trusted-have["long"].Flows.Trusted
			if brief < 300 || long > brief/10 {
				t.Errorf("%d made way that would have lived for a minute, and %d of those for an hour", brief, long)
			}
		})
	}
}

// TestSeenOnceAreFewOfASet has many sets with as many flows that were seen once as they may have, all within somebody's
// part: who has less than its own gets no place there, though others of the set are borrowed.
func TestSeenOnceAreFewOfASet(t *testing.T) {
	for name, w := range tenantWorlds() {
		t.Run(name, func(t *testing.T) {
			d := newDivided(t, testSizes, claimant{w.many[0], "most", 18, wholeTable}, claimant{w.many[1], "greedy", 1, wholeTable}, claimant{w.one, "late", 1, wholeTable})
			w.send(t, d, w.many[1], 0x0c000000, 8000, 2)
			w.send(t, d, w.many[0], 0x0b000000, 1300, 1)
			w.send(t, d, w.one, 0x66000000, flow.OwnFlows(testSizes)/20, 1)
			m, err := flow.Map(&d.tables)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			wantLimits(t, d, m)
			wantExact(t, d)
		})
	}
}

// TestNobodyLosesItsOwn has random VIPs of random tenants, one after the other, send to a table that is far too small,
// while their weights change. Who had no more trusted flows than its own has no fewer after any packet, and limits
// hold.
func TestNobodyLosesItsOwn(t *testing.T) {
	sizes := testSizes
	sizes.FlowSets, sizes.FlowLimit = 32, 150
	for name, w := range tenantWorlds() {
		lost := uint64(0)
		for seed := range uint64(12) {
			t.Run(fmt.Sprintf("%s %d", name, seed), func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 1))
				claimants := make([]claimant, 0, 5)
				for _, vip := range append(w.many[:len(w.many):len(w.many)], w.one) {
					tenant := []string{"", "a", "b"}[random.IntN(3)]
					claimants = append(claimants, claimant{vip, tenant, 1 + random.IntN(5), uint32(random.IntN(2) * (20 + random.IntN(150)))})
				}
				d := newDivided(t, sizes, claimants...)
				m, err := flow.Map(&d.tables)
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				busy := claimants[0]
				for step := range 4000 {
					if step%200 == 0 {
						busy = claimants[random.IntN(len(claimants))]
					}
					if step%500 == 499 {
						i := random.IntN(len(claimants))
						claimants[i].workloads = 1 + random.IntN(5)
						apply(t, d, claimants[i].endpoint(i))
						sweepFlows(t, d)
					}
					c := claimants[random.IntN(len(claimants))]
					if random.IntN(4) > 0 {
						c = busy
					}
					before := snapshot(m)
					run(t, d, pkt.TCP(w.from(0x0b000000, step/200<<8+random.IntN(80)), c.vip, pkt.ACK).Frame())
					lost += wantOwn(t, d.endpoints.Rows.Live[netip.MustParseAddrPort(c.vip).Addr()].Row.Vip, before, snapshot(m))
				}
				wantLimits(t, d, m)
				wantExact(t, d)
				tenantsHave(t, d)
			})
		}
		if lost < 200 {
			t.Errorf("flows of %s have lost %d cells to others: too few to show anything", name, lost)
		}
	}
}

// flowAccounts are copies of the rows of vip_usage and tenant_usage.
type flowAccounts struct{ vips, tenants []bpf.MuxFlowUsage }

func snapshot(m *flow.Memory) flowAccounts {
	return flowAccounts{append([]bpf.MuxFlowUsage(nil), m.Usage...), append([]bpf.MuxFlowUsage(nil), m.Tenants...)}
}

// less tells whether the row has fewer cells of the kind than are its own.
func less(row bpf.MuxFlowUsage, kind int) bool {
	return row.Cells[kind] < [2]uint64{max(uint64(row.Guaranteed/2), 1), uint64(row.Guaranteed)}[kind]
}

// wantOwn compares what was before a packet for a VIP with what is after it, and tells how many trusted flows somebody
// lost.
func wantOwn(t *testing.T, vip uint32, before, after flowAccounts) (lost uint64) {
	t.Helper()
	for tables, rows := range [][2][]bpf.MuxFlowUsage{{before.vips, after.vips}, {before.tenants, after.tenants}} {
		for i, was := range rows[0] {
			is := rows[1][i]
			if is.Cells[1] >= was.Cells[1] {
				continue
			}
			lost += was.Cells[1] - is.Cells[1]
			if was.Cells[1] <= uint64(was.Guaranteed) {
				t.Fatalf("row %d of %s had %+v, has %+v", i, []string{"vip_usage", "tenant_usage"}[tables], was, is)
			}
		}
	}
	kind, us := 0, before.vips[vip]
	if after.vips[vip].Cells[1] > us.Cells[1] {
		kind = 1
	}
	for i, was := range before.vips {
		is := after.vips[i]
		if uint32(i) != vip && is.Cells != was.Cells && !less(us, kind) && (us.Tenant == 0 || !less(before.tenants[us.Tenant], kind)) {
			t.Fatalf("VIP %d of %+v, tenant %+v, took a cell of VIP %d: %+v", vip, us, before.tenants[us.Tenant], i, was)
		}
	}
	return lost
}

// wantLimits holds what VIPs, tenants and sets have against what they may have.
func wantLimits(t *testing.T, d *Datapath, m *flow.Memory) {
	t.Helper()
	within := func(what string, have flow.Usage, limit uint64) {
		if have.Trusted > limit || have.Untrusted > limit/2 {
			t.Errorf("%s has %+v of %d", what, have, limit)
		}
	}
	for vip, v := range vipsHave(t, d) {
		within("VIP "+vip, v.Flows, uint64(v.Limit))
	}
	for name, v := range tenantsHave(t, d) {
		within("tenant "+name, v.Flows, uint64(v.Limit))
	}
	for i, set := range m.Sets {
		cells := [2]int{}
		for _, cell := range set.Cells {
			if cell.Owner != 0 {
				cells[cell.Owner&1]++
			}
		}
		if cells[0] > 4 || cells[1] > 6 {
			t.Errorf("set %d has %d untrusted and %d trusted cells", i, cells[0], cells[1])
		}
	}
}

// TestUsageIsExactWhileOthersMakeWay has several threads take cells from each other's VIPs, while user space sweeps.
func TestUsageIsExactWhileOthersMakeWay(t *testing.T) {
	sizes := testSizes
	sizes.FlowSets, sizes.FlowLimit = 64, 512
	w := tenantWorlds()["v4"]
	d := newDivided(t, sizes, claimant{w.many[0], "a", 1, 0}, claimant{w.many[1], "a", 2, 0}, claimant{w.many[2], "b", 3, 0}, claimant{w.one, "", 2, 0})
	vips := []string{w.many[0], w.many[1], w.many[2], w.one}
	var done atomic.Bool
	var sweeper, senders errgroup.Group
	sweeper.Go(func() error {
		for !done.Load() {
			if _, err := d.SweepFlows(); err != nil {
				return err
			}
		}
		return nil
	})
	for i, vip := range vips {
		senders.Go(func() error {
			for step := range 4000 {
				run(t, d, pkt.TCP(w.from(0x0b000000+uint32(i)<<24, step/3%400), vip, pkt.ACK).Frame())
			}
			return nil
		})
	}
	_ = senders.Wait()
	done.Store(true)
	if err := sweeper.Wait(); err != nil {
		t.Fatal(err)
	}
	wantExact(t, d)
	sweepFlows(t, d) // which corrects what one counted amid packets
	tenantsHave(t, d)
}
