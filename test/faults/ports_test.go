package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
)

// ports is who had which range of ports, by the tables of the hosts' programs, from the beginning of a lab to its end.
type ports struct {
	mu       sync.Mutex
	seen     map[vipRange]sighting
	held     map[string]map[model.SNATKey][]model.Range // by host, as last read
	reads    map[string]int                             // by host
	gained   int                                        // ranges that a workload did not have at the reading before
	given    int                                        // ranges that were back
	conflict []string
}

type vipRange struct {
	vip    netip.Addr
	number model.Range
}

// sighting is when a workload was last seen with a range: it had it at this time or later.
type sighting struct {
	workload netip.Addr
	at       time.Time
}

func newPorts() *ports {
	return &ports{seen: map[vipRange]sighting{}, held: map[string]map[model.SNATKey][]model.Range{}, reads: map[string]int{}}
}

// watchPorts reads all hosts' tables until the test ends, and holds then that ranges came and went.
func watchPorts(t *testing.T, lab *netlab.Lab) *ports {
	t.Helper()
	p := newPorts()
	always := context.WithoutCancel(t.Context())
	ctx, cancel := context.WithCancel(always)
	var readers sync.WaitGroup
	for _, host := range lab.Of(netlab.Host) {
		readers.Go(func() {
			for ctx.Err() == nil {
				from := time.Now()
				// It fails while an agent that starts replaces the tables.
				if status, err := agent.Inspect(lab.PinPath(host.Name)); err == nil {
					p.read(host.Name, status.SNAT, from, time.Now())
				}
				sleep(ctx, 250*time.Millisecond)
			}
		})
	}
	t.Cleanup(func() {
		err := netlab.Poll(always, bound, p.moved) // what is idle goes back a little after the last connections
		cancel()
		readers.Wait()
		if t.Logf("workloads got %d ranges of ports, and gave %d back", p.gained, p.given); err != nil {
			t.Error(err)
		}
	})
	return p
}

// moved says whether ranges came and went.
func (p *ports) moved() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gained == 0 || p.given == 0 {
		return errors.New("no range of ports came and went")
	}
	return nil
}

// read takes what a host had at some time between two. A range that a workload releases is in quarantine for snatport.QuarantineTime,
// whoever leads meanwhile: so one that another workload had less than that before is given twice, or was not in quarantine.
func (p *ports) read(host string, held map[model.SNATKey][]model.Range, from, to time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads[host]++
	for key, ranges := range held {
		for _, r := range ranges {
			if !slices.Contains(p.held[host][key], r) {
				p.gained++
			}
			at := vipRange{key.VIP, r}
			if last, known := p.seen[at]; known && last.workload != key.Address && to.Sub(last.at) < snatport.QuarantineTime {
				p.conflict = append(p.conflict, fmt.Sprintf("range %d of %s: %s has it, and %s had it %v before",
					r, key.VIP, key.Address, last.workload, to.Sub(last.at).Round(time.Millisecond)))
			}
			p.seen[at] = sighting{key.Address, from}
		}
	}
	for key, ranges := range p.held[host] {
		for _, r := range ranges {
			if !slices.Contains(held[key], r) {
				p.given++
			}
		}
	}
	p.held[host] = held
}

// conflicts are the ranges that were with two workloads since this was asked last.
func (p *ports) conflicts() (conflicts []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	conflicts, p.conflict = p.conflict, nil
	return conflicts
}

// all is what each workload has, by the tables of the hosts, and how often they were read.
func (p *ports) all() (held map[model.SNATKey][]model.Range, reads int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held, reads = map[model.SNATKey][]model.Range{}, 0
	for host, ports := range p.held {
		maps.Copy(held, ports)
		reads += p.reads[host]
	}
	return held, reads
}

// portsAgree holds that no range was with two workloads, and that in the end the store, the hosts and the muxes have the
// same, in which the managers' own audit found nothing to mend.
func (w *world) portsAgree(t *testing.T) {
	t.Helper()
	_, before := w.ports.all()
	w.eventually(t, func(ctx context.Context) error {
		held, reads := w.ports.all()
		if reads < before+2*w.Hosts {
			return fmt.Errorf("the hosts' tables were read %d times since", reads-before)
		}
		stored, err := w.storedPorts(ctx)
		if err != nil {
			return err
		}
		if wrong := stored.differs(held); wrong != nil {
			return wrong
		}
		for _, n := range w.Of(netlab.Mux) {
			if err := w.muxHas(n, stored); err != nil {
				return err
			}
		}
		return nil
	})
	for _, conflict := range w.ports.conflicts() {
		t.Error(conflict)
	}
	out, err := w.Weir("get", "events")
	must(t, err)
	if strings.Contains(out, "PortsDiffer") || strings.Contains(out, "PortsMended") {
		t.Errorf("the managers found that tables differ:\n%s", out)
	}
}

// storedPorts is what the store has of ports.
type storedPorts struct {
	own     map[model.SNATKey][]model.Range
	hosts   map[model.SNATKey]string // of workloads
	blocks  map[hostVIP][]model.Range
	tunnels map[model.SNATKey]int // ranges that muxes are to lead to a tunnel
}

type hostVIP struct {
	host string
	vip  netip.Addr
}

// storedPorts reads what the store has: a range is of one workload, or of one host's block.
func (w *world) storedPorts(ctx context.Context) (storedPorts, error) {
	stored := storedPorts{map[model.SNATKey][]model.Range{}, map[model.SNATKey]string{}, map[hostVIP][]model.Range{}, map[model.SNATKey]int{}}
	owners := map[vipRange]netip.Addr{}
	for _, f := range families {
		r, err := one(w, w.cluster.replicas).GetSNAT(ctx, &weirv1.GetSNATRequest{Name: f.vip})
		if err != nil {
			return stored, err
		}
		for _, owner := range r.GetWorkloads() {
			key := model.SNATKey{VIP: netip.MustParseAddr(r.GetAddress()), Address: netip.MustParseAddr(owner.GetAddress())}
			for _, n := range slices.Concat(owner.GetRanges(), owner.GetQuarantined()) {
				at := vipRange{key.VIP, model.Range(n)}
				if other, taken := owners[at]; taken {
					return stored, fmt.Errorf("range %d of %s is of %s and of %s", n, key.VIP, other, key.Address)
				}
				owners[at] = key.Address
			}
			var ranges []model.Range
			for _, n := range owner.GetRanges() {
				ranges = append(ranges, model.Range(n))
			}
			slices.Sort(ranges)
			if tunnel, err := netip.ParseAddr(owner.GetTunnel()); err == nil {
				stored.tunnels[model.SNATKey{VIP: key.VIP, Address: tunnel}] += len(ranges)
			}
			if owner.GetBlock() {
				stored.blocks[hostVIP{owner.GetHost(), key.VIP}] = ranges
			} else {
				stored.own[key], stored.hosts[key] = ranges, owner.GetHost()
			}
		}
	}
	return stored, nil
}

// differs says how the tables of hosts are not what the store has: each workload has its own ranges, and otherwise some of
// its host's block.
func (s storedPorts) differs(held map[model.SNATKey][]model.Range) error {
	for key, own := range s.own {
		for _, r := range own {
			if !slices.Contains(held[key], r) {
				return fmt.Errorf("%s has the ranges %v, and the store has %v of it", key, held[key], own)
			}
		}
	}
	for key, ranges := range held {
		block := s.blocks[hostVIP{s.hosts[key], key.VIP}]
		for _, r := range ranges {
			if !slices.Contains(s.own[key], r) && !slices.Contains(block, r) {
				return fmt.Errorf("%s has range %d, and the store has %v of it and %v of its host's block", key, r, s.own[key], block)
			}
		}
	}
	return nil
}

// muxHas says whether a mux's tables lead as many ranges to each tunnel as the store has.
func (w *world) muxHas(n netlab.Node, stored storedPorts) error {
	out, err := w.Run(n.Name, w.Find("weir-mux"), "status", "--pin-path", w.PinPath(n.Name), "-o", "json")
	if err != nil {
		return err
	}
	var status struct {
		SNAT []struct {
			VIP     netip.Addr
			Tunnels []struct {
				Tunnel netip.Addr
				Ranges int
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		return fmt.Errorf("read the status of %s: %w: %s", n.Name, err, out)
	}
	has := map[model.SNATKey]int{}
	for _, vip := range status.SNAT {
		for _, tunnel := range vip.Tunnels {
			has[model.SNATKey{VIP: vip.VIP, Address: tunnel.Tunnel}] = tunnel.Ranges
		}
	}
	for key, ranges := range stored.tunnels {
		if has[key] != ranges {
			return fmt.Errorf("%s leads %d ranges to %s, and the store has %d", n.Name, has[key], key, ranges)
		}
	}
	return nil
}

// Who has a range that another workload had a moment ago is seen, on whichever host; who has it again, or after it was in
// quarantine, is not.
func TestPortsFindRangesGivenTwice(t *testing.T) {
	vip, began := netip.MustParseAddr("203.0.113.30"), time.Now()
	for _, c := range []struct {
		name, host, address string
		after               time.Duration
		wrong               int
	}{
		{"the same workload", "host1", "10.3.1.11", time.Second, 0},
		{"another of the same host", "host1", "10.3.1.12", time.Second, 1},
		{"one of another host", "host2", "10.3.2.11", snatport.QuarantineTime - time.Second, 1},
		{"one of another host, later", "host2", "10.3.2.11", snatport.QuarantineTime, 0},
	} {
		p := newPorts()
		read := func(host, address string, at time.Time) {
			key := model.SNATKey{VIP: vip, Address: netip.MustParseAddr(address)}
			p.read(host, map[model.SNATKey][]model.Range{key: {8000}}, at, at)
		}
		read("host1", "10.3.1.11", began)
		read(c.host, c.address, began.Add(c.after))
		if got := p.conflicts(); len(got) != c.wrong {
			t.Errorf("%s: found %q, want %d", c.name, got, c.wrong)
		}
	}
}
