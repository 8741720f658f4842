package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/agentd/snat/block"
	"github.com/weirlb/weir/internal/boottime"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/testkit/benchlab"
	"github.com/weirlb/weir/internal/wire"
)

// portBlocks measures what workloads wait for ports that their hosts give from port blocks, at the rate of Figure 15.
func (b *bench) portBlocks(ctx context.Context) error {
	of := size{replicas: 5, vips: b.scale(100), muxes: 8, agents: b.scale(200)}
	return b.with(ctx, of, func(w *world) error {
		p := ports{w}
		hosts, err := p.growBlocks(ctx, len(p.agents))
		if err != nil {
			return err
		}
		const perSecond, seconds = 500, 20
		idle := p.cpu()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(seconds * time.Second):
		}
		grants, cpu := requestsOf(hosts), p.cpu()
		without := (cpu.managers - idle.managers).Seconds()
		all, err := p.askBlocks(ctx, hosts, perSecond, perSecond*seconds)
		if err != nil {
			return err
		}
		p.addAsked("500 port requests a second, by blocks", all, p.since(cpu))
		n := float64(len(all.took))
		wait := quantiles(all.took)
		r := &p.results[len(p.results)-1]
		r.PerPort = 1000 * r.Managers / n
		r.Grants = float64(requestsOf(hosts)-grants) / n
		fmt.Printf("  port-wait-p50-ms %.3f, port-wait-p99-ms %.3f, port-grants-per-request %.4f, manager-cpu-ms-per-port-request %.3f (beyond what they take without requests: %.3f)\n",
			wait[50], wait[99], r.Grants, r.PerPort, 1000*(r.Managers-without)/n)
		return nil
	})
}

// beside measures the burst alone, and beside 2 000 port requests a second that hosts serve from their port blocks, in turns.
func (b *bench) beside(ctx context.Context) error {
	return b.with(ctx, size{replicas: 5, vips: b.scale(1000), muxes: 8, agents: b.scale(1000)}, func(w *world) error {
		const turns, asking = 10, 200
		p := ports{w}
		hosts, err := p.growBlocks(ctx, b.scale(asking))
		if err != nil {
			return err
		}
		var ratios []float64
		for turn := range turns {
			if err := w.burst(ctx, "burst", b.scale(1000), 2*turn+1); err != nil {
				return err
			}
			alone := p.results[len(p.results)-1].P99
			err := p.besideBurst(ctx, b.scale(1000), 2*turn+2, b.scale(2000), func(ctx context.Context, perSecond int) *asked {
				all, _ := p.askBlocks(ctx, hosts, perSecond, math.MaxInt)
				return all
			})
			if err != nil {
				return err
			}
			ratios = append(ratios, p.results[len(p.results)-2].P99/alone)
		}
		slices.Sort(ratios)
		w.add("p99 of the burst beside port requests, to alone", []time.Duration{0}, func(r *result) { r.Ratios = ratios })
		return nil
	})
}

// growBlocks makes the VIPs that workloads leave as, and grows the blocks of so many hosts to what the demand foretells.
func (p ports) growBlocks(ctx context.Context, n int) ([]*blockHost, error) {
	if err := p.makeVIPs(ctx); err != nil {
		return nil, err
	}
	hosts := make([]*blockHost, n)
	for i := range hosts {
		hosts[i] = newBlockHost(i, p.agents[i].client)
	}
	_, err := p.askBlocks(ctx, hosts, 4000, 120*n)
	return hosts, err
}

// askBlocks has workloads need a range each, so many a second and so many in all, or fewer if ctx ends before. They are of
// hosts at random: in turn, all blocks would be used up at once.
func (p ports) askBlocks(ctx context.Context, hosts []*blockHost, perSecond, n int) (*asked, error) {
	all := &asked{}
	var open sync.WaitGroup
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	for i := 0; i < n; {
		select {
		case <-ctx.Done():
			open.Wait()
			return all, ctx.Err()
		case <-tick.C:
		}
		for due := min(n, int(time.Since(begin).Seconds()*float64(perSecond))); i < due; i++ {
			host := hosts[rand.IntN(len(hosts))]
			open.Go(func() {
				begin := time.Now()
				err := host.need(context.WithoutCancel(ctx))
				all.note(time.Since(begin), err)
			})
		}
	}
	open.Wait()
	return all, nil
}

func requestsOf(hosts []*blockHost) (n int) {
	for _, h := range hosts {
		h.mu.Lock()
		n += h.requests
		h.mu.Unlock()
	}
	return n
}

// blockHost is a host with one workload, which it serves as its agent would.
type blockHost struct {
	name     string
	workload netip.Addr
	key      model.SNATKey
	client   *rpc.Client

	mu       sync.Mutex
	pool     block.Pool
	list     snat.List // as of the last answer
	granted  int
	requests int
	asking   chan struct{} // closed when the request under way has ended; nil: there is none
	failure  error         // of the last request
}

func newBlockHost(i int, client *rpc.Client) *blockHost {
	return &blockHost{
		name: benchlab.HostName(i), workload: netip.MustParseAddr(workloadAddress(i)), client: client,
		key: model.BlockKey(netip.MustParseAddr(leavingAddress(i)), benchlab.HostName(i)),
	}
}

// need returns when the workload has a range more.
func (h *blockHost) need(ctx context.Context) error {
	for {
		h.mu.Lock()
		given := h.pool.Give(h.workload, 1, boottime.Since())
		if h.asking == nil && (len(given) == 0 || h.pool.IsLow(h.granted, boottime.Since())) {
			h.asking = make(chan struct{})
			h.requests++
			go h.ask(ctx, h.asking)
		}
		asking := h.asking
		h.mu.Unlock()
		if len(given) > 0 {
			return nil
		}
		<-asking
		h.mu.Lock()
		err := h.failure
		h.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// ask asks the manager for more of the block.
func (h *blockHost) ask(ctx context.Context, ended chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	had := h.list // of this goroutine: one request at a time
	answer, err := h.client.AllocatePorts(ctx, &weirv1.AllocatePortsRequest{
		Name: h.name, Vip: h.key.VIP.String(), Address: h.key.Address.String(), Ports: 1, Has: had.Digest(),
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	defer close(ended)
	if h.asking, h.failure = nil, err; err != nil {
		return
	}
	list, err := wire.PortAllocationFromProto(answer.GetAllocation(), had)
	given, failed := wire.RangesFromProto(answer.GetGiven())
	if h.failure = err; err == nil {
		h.failure = failed
	}
	h.list = list
	h.pool.Replace(slices.Clone(list.Ranges), nil, boottime.Since())
	h.pool.Refresh(given, boottime.Since())
	h.granted = len(given)
}
