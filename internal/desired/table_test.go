package desired

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
)

var (
	start = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	check = &model.HealthCheck{Type: model.CheckTCP, Interval: 2, Timeout: 1, Rise: 1, Fall: 1}
)

func backend(n int, weight uint32) model.Backend {
	return model.Backend{
		Address: netip.AddrFrom4([4]byte{10, 3, byte(n >> 8), byte(n)}), Port: 8080,
		Host: fmt.Sprintf("host%d", n%3), Weight: weight,
	}
}

func shop(checked bool, backends ...model.Backend) model.VIP {
	e := model.Endpoint{Protocol: model.TCP, Port: 80, Backends: backends}
	if checked {
		e.HealthCheck = check
	}
	return model.VIP{
		Name: "shop", Tenant: "acme", Address: netip.MustParseAddr("203.0.113.10"), Endpoints: []model.Endpoint{e},
	}
}

// world applies VIPs one after another, as the manager does.
type world struct {
	State
	now   time.Time
	ended Ended
}

// free is as of one leader who saw everything at once.
func (w *world) free(_ model.EndpointKey, r Row) time.Duration { return w.now.Sub(r.Freed) }

// newWorld has the hosts that backends are on.
func newWorld() *world {
	w := &world{now: start}
	for n := range 3 {
		w.PutNode(model.Node{Name: fmt.Sprintf("host%d", n), Role: model.RoleHost})
	}
	return w
}

func (w *world) apply(vip model.VIP) Table {
	w.PutVIP(vip)
	for key, table := range w.ChangedTables(vip, w.now, w.ended, w.free) {
		w.Tables.Set(key, table)
	}
	return w.Tables.At(Key(vip, vip.Endpoints[0]))
}

// end ends all moves of vip's first endpoint that began by now.
func (w *world) end(vip model.VIP) {
	all := map[model.Slot]time.Time{}
	for slot := range model.Slot(model.MaxBackends) {
		all[slot] = w.now
	}
	w.ended = Ended{Key(vip, vip.Endpoints[0]): all}
}

func (w *world) report(vip model.VIP, b model.Backend, health model.Health) {
	if w.Health.At(b.Host) == nil {
		w.Health.Set(b.Host, HostHealth{})
	}
	key := HealthKey{Endpoint: Key(vip, vip.Endpoints[0]), Backend: b.AddrPort()}
	w.Health.At(b.Host)[key] = model.BackendHealth{Endpoint: key.Endpoint, Backend: key.Backend, Health: health}
}

// silence makes the backend's host silent.
func (w *world) silence(vip model.VIP, b model.Backend) {
	w.report(vip, b, model.HealthUnhealthy)
	key := HealthKey{Endpoint: Key(vip, vip.Endpoints[0]), Backend: b.AddrPort()}
	said := w.Health.At(b.Host)[key]
	said.Silent = true
	w.Health.At(b.Host)[key] = said
}

// inBuckets lists which of the backends are in buckets, by index.
func inBuckets(t Table, backends []model.Backend) []int {
	var all []int
	for i, b := range backends {
		if slot := t.Slots()[b.AddrPort()]; slot != 0 && t.Shares()[slot] > 0 {
			all = append(all, i)
		}
	}
	return all
}

func TestWhoIsInBuckets(t *testing.T) {
	const (
		none      = model.HealthUnknown // nothing was reported yet
		healthy   = model.HealthHealthy
		unhealthy = model.HealthUnhealthy
	)
	for _, c := range []struct {
		name    string
		checked bool
		udp     bool
		silent  bool // those that are unhealthy
		policy  model.AllUnhealthy
		weights []uint32
		health  []model.Health
		in      []int
		down    []int
	}{
		{name: "unchecked", weights: []uint32{1, 2, 3}, in: []int{0, 1, 2}},
		{name: "draining", weights: []uint32{1, 0, 3}, in: []int{0, 2}},
		{name: "all drain", weights: []uint32{0, 0}},
		{name: "none known yet", checked: true, weights: []uint32{1, 1}, health: []model.Health{none, none}, in: []int{0, 1}},
		{name: "none known yet, refuse", checked: true, policy: model.Refuse, weights: []uint32{1, 1}, health: []model.Health{none, none}},
		{name: "one known", checked: true, weights: []uint32{1, 1}, health: []model.Health{none, healthy}, in: []int{1}},
		{name: "one unhealthy", checked: true, weights: []uint32{1, 1}, health: []model.Health{healthy, unhealthy}, in: []int{0}},
		{name: "one unhealthy, UDP", udp: true, checked: true, weights: []uint32{1, 1}, health: []model.Health{healthy, unhealthy}, in: []int{0}, down: []int{1}},
		{name: "one silent", silent: true, checked: true, weights: []uint32{1, 1}, health: []model.Health{healthy, unhealthy}, in: []int{0}, down: []int{1}},
		{name: "all silent", silent: true, checked: true, weights: []uint32{1, 1}, health: []model.Health{unhealthy, unhealthy}, in: []int{0, 1}},
		{name: "all unhealthy", checked: true, weights: []uint32{1, 1}, health: []model.Health{unhealthy, unhealthy}, in: []int{0, 1}},
		{
			name: "all unhealthy, refuse", checked: true, policy: model.Refuse, weights: []uint32{1, 1},
			health: []model.Health{unhealthy, unhealthy},
		},
		{name: "only a draining one is healthy", checked: true, weights: []uint32{0, 1}, health: []model.Health{healthy, unhealthy}, in: []int{1}},
		{name: "drains and is unhealthy", checked: true, weights: []uint32{0, 1}, health: []model.Health{unhealthy, healthy}, in: []int{1}},
		{name: "unhealthy before the check was removed", weights: []uint32{1, 1}, health: []model.Health{unhealthy, unhealthy}, in: []int{0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld()
			var backends []model.Backend
			for i, weight := range c.weights {
				backends = append(backends, backend(i, weight))
			}
			vip := shop(c.checked, backends...)
			vip.Endpoints[0].AllUnhealthy = c.policy
			if c.udp {
				vip.Endpoints[0].Protocol = model.UDP
			}
			for i, health := range c.health {
				switch {
				case c.silent && health == unhealthy:
					w.silence(vip, backends[i])
				case health != none:
					w.report(vip, backends[i], health)
				}
			}
			expectTable(t, w.apply(vip), backends, c.in, c.down)
		})
	}
}

// expectTable holds which backends are in buckets, and which are down, by index.
func expectTable(t *testing.T, table Table, backends []model.Backend, in, down []int) {
	t.Helper()
	if got := inBuckets(table, backends); !slices.Equal(got, in) {
		t.Errorf("in buckets are %v, want %v", got, in)
	}
	for _, r := range table.Rows {
		if want := slices.Contains(down, int(r.Slot)-1); r.Down != want {
			t.Errorf("slot %d is down: %v, want %v", r.Slot, r.Down, want)
		}
	}
}

func TestSlotsAreForLife(t *testing.T) {
	w := newWorld()
	a, b, c := backend(1, 1), backend(2, 1), backend(3, 1)
	w.apply(shop(false, a, b))
	table := w.apply(shop(false, c, b))
	if table.Slots()[b.AddrPort()] != 2 || table.Slots()[c.AddrPort()] != 3 {
		t.Errorf("b and c have slots %d and %d, want 2 and 3: 1 is retired", table.Slots()[b.AddrPort()], table.Slots()[c.AddrPort()])
	}
	if row, ok := table.Row(1); !ok || !row.Down || !row.Retired() || row.Backend != a.AddrPort() {
		t.Errorf("slot 1 is %+v, want a, retired and down", row)
	}

	retire := retireTime(shop(false).Endpoints[0])
	w.now = start.Add(retire / 2)
	if table = w.apply(shop(false, c, b, a)); table.Slots()[a.AddrPort()] != 1 {
		t.Errorf("a came back to slot %d, want its own, 1", table.Slots()[a.AddrPort()])
	}
	w.apply(shop(false, b))
	w.now = w.now.Add(retire)
	if table = w.apply(shop(false, b)); len(table.Rows) != 1 {
		t.Errorf("rows are %+v, want those of b only: the others retired long ago", table.Rows)
	}
	if table = w.apply(shop(false, b, c)); table.Slots()[c.AddrPort()] != 1 {
		t.Errorf("c got slot %d, want 1, free again", table.Slots()[c.AddrPort()])
	}
}

func TestATunnelMovesWithoutANewSlot(t *testing.T) {
	w := newWorld()
	b := backend(1, 1)
	w.apply(shop(false, b))
	b.Tunnel = netip.MustParseAddr("192.0.2.1")
	row, _ := w.apply(shop(false, b)).Row(1)
	if row.Tunnel != b.Tunnel || row.Backend != b.AddrPort() || row.Retired() {
		t.Errorf("row is %+v, want the new tunnel", row)
	}
}

func TestExhaustedSlotsTakeTheOldestRetired(t *testing.T) {
	w := newWorld()
	var all []model.Backend
	for i := range model.MaxBackends {
		all = append(all, backend(i+1, 1))
	}
	w.apply(shop(false, all...))
	w.now = start.Add(time.Minute)
	w.apply(shop(false, all[1:]...)) // retires slot 1
	w.now = start.Add(2 * time.Minute)
	w.apply(shop(false, all[2:]...)) // retires slot 2
	fresh := backend(20000, 1)
	table := w.apply(shop(false, append(slices.Clone(all[2:]), fresh)...))
	if slot := table.Slots()[fresh.AddrPort()]; slot != 1 {
		t.Errorf("the new backend got slot %d, want 1, which retired first", slot)
	}
	if row, ok := table.Row(2); !ok || !row.Retired() {
		t.Errorf("slot 2 is %+v, want it retired still", row)
	}
}

// Whatever happens, in whatever order: slots are unique and kept, a freed one is reserved, buckets name the
// members that a slow oracle names, and computing again changes nothing.
func TestTablesHoldTheirInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		before, owner, freed := map[netip.AddrPort]model.Slot{}, map[model.Slot]netip.AddrPort{}, map[model.Slot]time.Time{}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "minutes")) * time.Minute)
			vip := drawShop(t)
			for _, b := range vip.Endpoints[0].Backends {
				if rapid.Bool().Draw(t, "reports") {
					w.report(vip, b, rapid.SampledFrom([]model.Health{model.HealthHealthy, model.HealthUnhealthy}).Draw(t, "health"))
				}
			}
			w.end(vip)
			table := w.apply(vip)
			checkMembers(t, w, vip, table)
			now := map[netip.AddrPort]model.Slot{}
			for _, b := range vip.Endpoints[0].Backends {
				address, slot := b.AddrPort(), table.Slots()[b.AddrPort()]
				if last, had := before[address]; had && last != slot {
					t.Fatalf("%s moved from slot %d to %d", address, last, slot)
				}
				if owner[slot] != address && !freed[slot].IsZero() && w.now.Sub(freed[slot]) < retireTime(vip.Endpoints[0]) {
					t.Fatalf("slot %d of %s went to %s %s after it was freed", slot, owner[slot], address, w.now.Sub(freed[slot]))
				}
				now[address], owner[slot] = slot, address
			}
			for address, slot := range before {
				if now[address] == 0 {
					freed[slot] = w.now
				}
			}
			before = now
			w.ended = nil
			if again := w.ChangedTables(vip, w.now, nil, w.free); len(again) != 0 {
				t.Fatal("computing again changed the table")
			}
		}
	})
}

func drawShop(t *rapid.T) model.VIP {
	var backends []model.Backend
	for n := range 8 {
		if rapid.Bool().Draw(t, "there") {
			backends = append(backends, backend(n, rapid.Uint32Max(4).Draw(t, "weight")))
		}
	}
	vip := shop(rapid.Bool().Draw(t, "checked"), backends...)
	vip.Endpoints[0].AllUnhealthy = rapid.SampledFrom([]model.AllUnhealthy{"", model.KeepAll, model.Refuse}).Draw(t, "policy")
	return vip
}

// checkMembers holds that slots are unique, and that exactly the backends that should be are in
// buckets, with the share of their weight to within one bucket.
func checkMembers(t *rapid.T, w *world, vip model.VIP, table Table) {
	seen := map[model.Slot]bool{}
	for _, r := range table.Rows {
		if r.Slot == 0 || seen[r.Slot] {
			t.Fatalf("slot %d stands twice, or is 0", r.Slot)
		}
		seen[r.Slot] = true
	}
	e := vip.Endpoints[0]
	should := func(kept bool, b model.Backend) bool {
		health := w.Health.Of(vip, e, b).Health
		return b.Weight > 0 && (kept || health == model.HealthHealthy || health == model.HealthUnchecked)
	}
	kept := !slices.ContainsFunc(e.Backends, func(b model.Backend) bool { return should(false, b) })
	if kept && e.AllUnhealthy == model.Refuse {
		if len(table.MuxBuckets()) != 0 {
			t.Fatalf("there are buckets, though no backend is healthy and the policy is refuse")
		}
		return
	}
	var sum float64
	for _, b := range e.Backends {
		if should(kept, b) {
			sum += float64(b.Weight)
		}
	}
	for _, b := range e.Backends {
		want := 0.0
		if should(kept, b) {
			want = float64(b.Weight) / sum * float64(len(table.MuxBuckets()))
		}
		if got := float64(table.Shares()[table.Slots()[b.AddrPort()]]); got <= want-1 || got >= want+1 {
			t.Fatalf("%s has %v buckets, want %v", b.AddrPort(), got, want)
		}
	}
}
