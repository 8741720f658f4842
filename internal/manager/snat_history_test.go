package manager

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/wire"
)

// ledger is who was given which range, by the answers alone: what no manager can take back unseen. A workload does not
// use again what it released, though answers name it until a call that was cut off is carried out, if ever.
type ledger struct {
	mu       sync.Mutex
	owner    map[model.Range]netip.Addr
	released map[model.Range]netip.Addr
	twice    []string
}

func newLedger() ledger {
	return ledger{owner: map[model.Range]netip.Addr{}, released: map[model.Range]netip.Addr{}}
}

func (l *ledger) gave(to netip.Addr, ranges []model.Range) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range ranges {
		if l.released[r] == to {
			continue
		}
		if other, given := l.owner[r]; given && other != to {
			l.twice = append(l.twice, fmt.Sprintf("range %d is of %s, and was given to %s", r, other, to))
		}
		l.owner[r] = to
		delete(l.released, r)
	}
}

// of are the ranges of a workload, in order.
func (l *ledger) of(owner netip.Addr) []model.Range {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ranges []model.Range
	for r, o := range l.owner {
		if o == owner {
			ranges = append(ranges, r)
		}
	}
	slices.Sort(ranges)
	return ranges
}

func (l *ledger) back(ranges []model.Range) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range ranges {
		l.released[r] = l.owner[r]
		delete(l.owner, r)
	}
}

// history is a VIP with workloads on two hosts, and what becomes of its ports.
type history struct {
	random *rand.Rand
	ledger ledger
	urls   string // all managers
	mux    *fakeMux
	listed map[netip.Addr]bool
	leaves []netip.Addr
	blocks []netip.Addr // addresses that name the blocks of hosts that serve workloads from them
}

const historySNATClients = 8 // two on each host

func startHistory(t *testing.T, urls, muxURL string, seed uint64) *history {
	t.Helper()
	t.Logf("history of seed %d", seed)
	h := &history{
		random: rand.New(rand.NewPCG(seed, 5)), urls: urls, ledger: newLedger(), listed: map[netip.Addr]bool{},
	}
	startHost(t, muxURL, "host1", "10.2.1.2")
	startHost(t, muxURL, "host2", "10.2.2.2")
	startBlockHost(t, muxURL, "host3", "10.2.3.2")
	startBlockHost(t, muxURL, "host4", "10.2.4.2")
	for _, host := range []string{"host3", "host4"} {
		h.blocks = append(h.blocks, model.BlockKey(firstSNATClient.VIP, host).Address)
	}
	h.mux = startMux(t, muxURL, "mux1", "10.1.1.2")
	client := dial(t, muxURL)
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 5 })
	for i := range historySNATClients {
		address := netip.AddrFrom4([4]byte{10, 3, byte(i%4 + 1), byte(i + 10)})
		h.leaves, h.listed[address] = append(h.leaves, address), true
	}
	h.write(t, client)
	return h
}

func hostOf(owner netip.Addr) string {
	for _, host := range []string{"host3", "host4"} {
		if model.BlockKey(firstSNATClient.VIP, host).Address == owner {
			return host
		}
	}
	return fmt.Sprintf("host%d", owner.As4()[2])
}

// isListed says whether somebody may have ports: a workload that is listed, or a host with such workloads.
func (h *history) isListed(owner netip.Addr) bool {
	return h.listed[owner] || slices.Contains(h.blocks, owner) &&
		slices.ContainsFunc(h.leaves, func(w netip.Addr) bool { return h.listed[w] && hostOf(w) == hostOf(owner) })
}

// write writes the VIP as it is by now: few ports, so that who is given some is soon given those of others.
func (h *history) write(t *testing.T, client *rpc.Client) {
	t.Helper()
	vip := crawler()
	vip.Snat.Reserved, vip.Snat.MaxPorts, vip.Snat.Workloads = []string{"1-63999"}, 256, nil
	for _, address := range h.leaves {
		if h.listed[address] {
			vip.Snat.Workloads = append(vip.Snat.Workloads, &weirv1.SNATWorkload{Address: address.String(), Host: hostOf(address)})
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := client.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}}); err != nil {
		t.Logf("not applied: %v", err) // the manager was killed: the next step writes
	}
}

// ask has all workloads, and hosts for theirs, ask at once, and release some of what they have. Calls fail when a manager dies.
func (h *history) ask(t *testing.T, client *rpc.Client) *sync.WaitGroup {
	var calls sync.WaitGroup
	for _, snatClient := range slices.Concat(h.leaves, h.blocks) {
		ports, releases := h.random.Uint32N(40), h.random.IntN(2) == 0
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			if held := h.ledger.of(snatClient); releases && len(held) > 1 {
				given := held[:len(held)/2]
				h.ledger.back(given) // from here on it is not used, whatever becomes of the call
				client.ReleasePorts(ctx, &weirv1.ReleasePortsRequest{
					Name: hostOf(snatClient), Vip: firstSNATClient.VIP.String(), Address: snatClient.String(), Ranges: wire.RangesToProto(given),
				})
			}
			r, err := client.AllocatePorts(ctx, &weirv1.AllocatePortsRequest{
				Name: hostOf(snatClient), Vip: firstSNATClient.VIP.String(), Address: snatClient.String(), Ports: ports,
			})
			if err != nil {
				return
			}
			ranges, err := wire.RangesFromProto(r.GetAllocation().GetRanges())
			if err != nil {
				t.Error(err)
			}
			h.ledger.gave(snatClient, ranges)
		})
	}
	return &calls
}

// compare holds the ledger, the store and the mux against each other.
func (h *history) compare(t *testing.T, client *rpc.Client) {
	t.Helper()
	var stored map[model.Range]netip.Addr
	eventually(t, "the mux has what the store has", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r, err := client.GetSNAT(ctx, &weirv1.GetSNATRequest{Name: "crawler"})
		if err != nil {
			return false
		}
		stored = map[model.Range]netip.Addr{}
		for _, w := range r.GetWorkloads() {
			for _, n := range slices.Concat(w.GetRanges(), w.GetQuarantined()) {
				if other, given := stored[model.Range(n)]; given {
					t.Fatalf("range %d is of %s and of %s", n, other, w.GetAddress())
				}
				if slices.Contains(w.GetRanges(), n) {
					stored[model.Range(n)] = netip.MustParseAddr(w.GetAddress())
				}
			}
		}
		owners := h.mux.owners(firstSNATClient.VIP)
		return maps.EqualFunc(owners, stored, func(have []netip.Addr, want netip.Addr) bool { return len(have) == 1 && have[0] == want })
	})
	for _, snatClient := range slices.Concat(h.leaves, h.blocks) {
		for _, r := range h.ledger.of(snatClient) {
			if h.isListed(snatClient) && stored[r] != snatClient {
				t.Errorf("range %d was given to %s, and the store has it of %v", r, snatClient, stored[r])
			}
		}
	}
	for _, wrong := range h.ledger.twice {
		t.Error(wrong)
	}
}

// relist takes a workload out of the list, or back in. What it had is not its own any more.
func (h *history) relist(t *testing.T, client *rpc.Client) {
	snatClient := h.leaves[h.random.IntN(len(h.leaves))]
	h.listed[snatClient] = !h.listed[snatClient]
	for _, owner := range slices.Concat(h.leaves, h.blocks) {
		if !h.isListed(owner) {
			h.ledger.back(h.ledger.of(owner))
		}
	}
	h.write(t, client)
}

// Whatever is asked, released and changed, and whenever the manager is killed: nobody is given what somebody else has,
// and what was answered is kept.
func TestNothingIsGivenTwice(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	p := newProcess(t)
	p.start(t)
	h := startHistory(t, p.url(), p.url(), seed)
	client := dial(t, p.url())
	for step := range 12 {
		calls := h.ask(t, client)
		switch {
		case step%3 == 1: // in the midst of it
			p.kill()
			calls.Wait()
			p.start(t)
		case step%4 == 2:
			calls.Wait()
			h.relist(t, client)
		default:
			calls.Wait()
		}
		h.compare(t, client)
		if t.Failed() {
			t.Fatalf("after step %d of the history of seed %d", step, seed)
		}
	}
	if len(h.ledger.owner) < historySNATClients {
		t.Errorf("only %d ranges were given", len(h.ledger.owner))
	}
}

// The leader goes while ports are asked for, by managers that all hosts can reach: the next one goes on.
func TestNothingIsGivenTwiceByTheNextLeader(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, 3)
	client := dial(t, r.urls[0]+","+r.urls[1]+","+r.urls[2])
	var leader int
	eventually(t, "one leads", func() bool {
		name := leaderOf(listManagers(t, client))
		leader = slices.Index([]string{"m1", "m2", "m3"}, name)
		return leader >= 0
	})
	others := r.urls[(leader+1)%3] + "," + r.urls[(leader+2)%3]
	h := startHistory(t, others, others, uint64(time.Now().UnixNano()))
	asks := dial(t, others)
	h.ask(t, asks).Wait()
	h.compare(t, asks)
	calls := h.ask(t, asks)
	r.stops[leader]()
	calls.Wait()
	for range 3 {
		h.ask(t, asks).Wait()
	}
	h.compare(t, asks)
}
