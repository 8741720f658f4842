package snatalloc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/time/rate"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/wire"
)

const (
	// vipRate is how many port requests a second are taken of all workloads of a VIP.
	vipRate = 500
	// allocateTimeout bounds how long a port request waits for the store and the muxes.
	allocateTimeout = 10 * time.Second
	// maxOpen is how many port requests are under way at most; maxOpenHost of one host and maxOpenTenant of the VIPs of one
	// tenant, so that others find a place. One that finds none may be made again after busyRetry to twice that: hosts that
	// were refused at once don't come back at once.
	maxOpen       = 128
	maxOpenHost   = 32
	maxOpenTenant = 96
	busyRetry     = 200 * time.Millisecond
	// hostRate is how many port requests a host may make a second, whatever becomes of them.
	hostRate = 500
	// fullRetry is when a workload that may have no more ports may ask again.
	fullRetry = 5 * time.Second
	// restoredRetry is when who was refused as a restore is pending may ask again.
	restoredRetry = time.Second
)

// What a port request that is granted spends its time on, as a metric calls it.
const (
	stageWait  = "wait"  // for the writer
	stageWrite = "write" // until the State shows it
	stageMuxes = "muxes" // until all healthy ones have answered
)

// requests are those that the leader has been asked lately.
type requests struct {
	mu    sync.Mutex
	of    map[model.SNATKey]*requester
	vips  map[netip.Addr]*rate.Limiter
	swept time.Time
}

// requester is a workload that has asked for ports lately.
type requester struct {
	outstanding bool
	demand      snat.Demand
	limit       *rate.Limiter
	asked       time.Time
}

func newRequests() *requests {
	return &requests{of: map[model.SNATKey]*requester{}, vips: map[netip.Addr]*rate.Limiter{}}
}

// begin takes a request of a workload, unless another one of it is under way, or there were too many.
func (p *requests) begin(key model.SNATKey, perSecond uint32, now time.Time) (demand snat.Demand, end func(gave int), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(now)
	r := p.of[key]
	if r == nil {
		r = &requester{limit: rate.NewLimiter(rate.Limit(perSecond), int(perSecond))}
		p.of[key] = r
	}
	vip := p.vips[key.VIP]
	if vip == nil {
		vip = rate.NewLimiter(vipRate, vipRate)
		p.vips[key.VIP] = vip
	}
	if r.limit.Limit() != rate.Limit(perSecond) {
		r.limit.SetLimitAt(now, rate.Limit(perSecond))
		r.limit.SetBurstAt(now, int(perSecond))
	}
	if r.outstanding {
		return demand, nil, rpc.RefusePorts(rpc.PortsOutstanding, time.Second/time.Duration(perSecond),
			fmt.Errorf("%s asks for ports while another request of it is under way", key))
	}
	r.asked = now
	for _, limited := range []struct {
		limit *rate.Limiter
		who   string
	}{{r.limit, key.String()}, {vip, "VIP " + key.VIP.String()}} {
		taken := limited.limit.ReserveN(now, 1)
		if wait := taken.DelayFrom(now); wait > 0 {
			taken.CancelAt(now)
			return demand, nil, rpc.RefusePorts(rpc.PortsRate, wait,
				fmt.Errorf("%s asks for ports more than %v times a second", limited.who, limited.limit.Limit()))
		}
	}
	r.outstanding = true
	return r.demand, func(gave int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if r.outstanding = false; gave > 0 {
			r.demand = r.demand.Allocated(now, gave)
		}
	}, nil
}

// sweep forgets now and then who has not asked for long.
func (p *requests) sweep(now time.Time) {
	if now.Sub(p.swept) < time.Minute {
		return
	}
	p.swept = now
	maps.DeleteFunc(p.of, func(_ model.SNATKey, r *requester) bool { return !r.outstanding && now.Sub(r.asked) > time.Minute })
	maps.DeleteFunc(p.vips, func(_ netip.Addr, l *rate.Limiter) bool { return l.TokensAt(now) >= vipRate })
}

// clientOf finds who leaves as a VIP on a host, or the VIP of the host's port block.
func clientOf(s *store.State, host string, key model.SNATKey) (model.VIP, error) {
	vip, w, there := s.SNATClientWithVIP(key)
	switch {
	case !there:
		return vip, connect.NewError(connect.CodeNotFound, fmt.Errorf("no VIP %s lists %s in its snat", key.VIP, key.Address))
	case w.Host != host:
		return vip, connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%s does not live on %s", key.Address, host))
	case key.IsBlock() && !desired.HasPortBlock(s.State, key):
		return vip, connect.NewError(connect.CodeFailedPrecondition,
			fmt.Errorf("%s registered without port blocks: its workloads ask for ports, not the host", host))
	}
	return vip, nil
}

var errBusy = errors.New("as many requests for ports as may be are under way: ask again")

// refuseBusy refuses a request for the sake of others. It may be made again after wait, and not with all others at once.
func refuseBusy(wait time.Duration, why error) error {
	return rpc.RefusePorts(rpc.PortsRate, wait+busyRetry+rand.N(busyRetry), why)
}

// enter takes a place of a request of a host, for a VIP of a tenant; leave gives it back.
func (a *Allocator) enter(host, tenant string) (leave func(), err error) {
	leaveHost := a.open.Acquire(host, maxOpen, maxOpenHost)
	if leaveHost == nil {
		return nil, refuseBusy(0, errBusy)
	}
	leaveTenant := a.ofTenants.Acquire(tenant, 0, maxOpenTenant)
	if leaveTenant == nil {
		leaveHost()
		return nil, refuseBusy(0, errBusy)
	}
	return func() { leaveHost(); leaveTenant() }, nil
}

// AllocatePorts gives a workload, or a host for its workloads, more ports of a VIP: written, and known to every healthy mux, when it answers.
func (a *Allocator) AllocatePorts(ctx context.Context, r *weirv1.AllocatePortsRequest) (*weirv1.AllocatePortsResponse, error) {
	begun := time.Now()
	response, err := a.allocatePorts(ctx, r)
	a.Metrics.Requests.WithLabelValues(outcomeOf(err)).Inc()
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	a.Metrics.took.WithLabelValues().Observe(time.Since(begun).Seconds())
	return response, nil
}

// take takes a request of a host, and says for whom it is, unless the host makes too many.
func (a *Allocator) take(r *weirv1.AllocatePortsRequest) (model.SNATKey, error) {
	if wait := a.Rates.Take("ports "+r.GetName(), hostRate, hostRate, 1, a.Now()); wait > 0 {
		return model.SNATKey{}, refuseBusy(wait, fmt.Errorf("host %s asks for ports more than %d times a second", r.GetName(), hostRate))
	}
	return wire.SNATKeyFromProto(&weirv1.SNATKey{Vip: r.GetVip(), Address: r.GetAddress()})
}

func (a *Allocator) allocatePorts(ctx context.Context, r *weirv1.AllocatePortsRequest) (*weirv1.AllocatePortsResponse, error) {
	key, err := a.take(r)
	if err != nil {
		return nil, err
	}
	state := a.Store.State()
	vip, err := clientOf(state, r.GetName(), key)
	if err != nil {
		return nil, err
	}
	leave, err := a.enter(r.GetName(), vip.Tenant)
	if err != nil {
		return nil, err
	}
	defer leave()
	demand, end, err := a.requests.begin(key, vip.SNAT.RequestRate, a.Now())
	if err != nil {
		return nil, err
	}
	gave := 0
	defer func() { end(gave) }()
	// What is refused for what it has need not wait behind what is written.
	if err := checkQuota(state, vip, key); err != nil {
		a.noteRefusal(vip, err)
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, allocateTimeout)
	defer cancel()
	var given []model.Range
	before, asked, taken := snat.List{}, time.Now(), time.Time{}
	_, err = a.Store.UpdateAs(ctx, store.Ports, func(s *store.State) (store.Change, error) {
		taken = time.Now()
		vip, err := clientOf(s, r.GetName(), key)
		if err != nil {
			return store.Change{}, err
		}
		n, err := grant(s, vip, key, demand, r.GetPorts(), a.Now())
		if err != nil {
			return store.Change{}, err
		}
		next, ranges := s.AllocatePorts(key, n, model.Range(rand.IntN(snat.Ranges)))
		given, before = ranges, listOf(s, key)
		return store.Change{Ports: map[model.SNATKey]snatport.Allocation{key: next}}, nil
	})
	if err != nil {
		a.noteRefusal(vip, err)
		return nil, err
	}
	gave = len(given)
	written := time.Now()
	now, err := a.allocation(ctx, key, before, r.GetHas())
	if err != nil {
		return nil, err
	}
	a.Metrics.stages.WithLabelValues(stageWait).Observe(taken.Sub(asked).Seconds())
	a.Metrics.stages.WithLabelValues(stageWrite).Observe(written.Sub(taken).Seconds())
	a.Metrics.stages.WithLabelValues(stageMuxes).Observe(time.Since(written).Seconds())
	a.Metrics.given.Add(float64(gave * model.RangePorts))
	return &weirv1.AllocatePortsResponse{Allocation: now, Given: wire.RangesToProto(given)}, nil
}

// listOf is the list of ranges that a State has of a workload.
func listOf(s *store.State, key model.SNATKey) snat.List {
	return snat.List{Written: s.PortsWritten.At(key), Ranges: s.Ports.At(key).Ranges}
}

// allocation returns what the State has of a workload, as soon as every healthy mux knows it: what differs from the list
// before, if the host has that. While a restore is pending hosts have more than that.
func (a *Allocator) allocation(ctx context.Context, key model.SNATKey, before snat.List, has uint64) (*weirv1.PortAllocation, error) {
	s := a.Store.State()
	if s.Restored.Pending() {
		return nil, errRestored()
	}
	list := listOf(s, key)
	if err := a.Hub.Await(ctx, list.Written); err != nil {
		return nil, rpc.RetryAfter(connect.CodeDeadlineExceeded,
			errors.New("the ports were written, and a mux does not know them yet: they come by the stream"), time.Second)
	}
	if has != before.Digest() {
		before = snat.List{}
	}
	return wire.PortAllocationToProto(list, before), nil
}

// checkQuota says why a workload or a host gets no more ports: it, or its VIP, has no room for more.
func checkQuota(s *store.State, vip model.VIP, key model.SNATKey) error {
	if s.Restored.Pending() {
		return errRestored()
	}
	if has := len(s.Ports.At(key).Ranges); mayTake(s, vip, key) <= 0 {
		return rpc.RefusePorts(rpc.PortsLimit, fullRetry, fmt.Errorf(
			"%s has %d ports, of the %d that it may: raise snat.maxPorts, if it may have more",
			nameOf(s, key), has*model.RangePorts, s.Ports.Limit(vip, key)*model.RangePorts))
	}
	if s.Ports.Available(vip, key) == 0 {
		return rpc.RefusePorts(rpc.PortsExhausted, fullRetry, fmt.Errorf(
			"VIP %s (%s) has no port left: give its workloads more VIPs, or fewer ports each by snat.maxPorts", vip.Name, key.VIP))
	}
	return nil
}

func errRestored() error {
	return rpc.RefusePorts(rpc.PortsRestored, restoredRetry, errors.New(
		"the store was restored from a backup: no ports are given or taken back until the hosts have told which they have"))
}

// nameOf is a workload, or "the block of host1 as 203.0.113.20", for messages.
func nameOf(s *store.State, key model.SNATKey) string {
	if w, there := s.Ports.Client(key); there && key.IsBlock() {
		return fmt.Sprintf("the port block of %s as %s", w.Host, key.VIP)
	}
	return key.String()
}

// mayTake is how many more ranges a workload or a host may have.
func mayTake(s *store.State, vip model.VIP, key model.SNATKey) int {
	return s.Ports.Limit(vip, key) - len(s.Ports.At(key).Ranges)
}

// grant is how many ranges a request gets; if none, it says why.
func grant(s *store.State, vip model.VIP, key model.SNATKey, demand snat.Demand, need uint32, now time.Time) (int, error) {
	if err := checkQuota(s, vip, key); err != nil {
		return 0, err
	}
	free, allowed := s.Ports.Available(vip, key), mayTake(s, vip, key)
	if key.IsBlock() {
		return demand.NextBlock(now, need, free, snatport.HostCount(vip), allowed), nil
	}
	return demand.Next(now, need, free, allowed), nil
}

// outcomeOf is what a metric calls the end of a port request.
func outcomeOf(err error) string {
	if err == nil {
		return "granted"
	}
	if why, _, refused := rpc.PortsRefused(err); refused {
		return why
	}
	return "failed"
}

// noteRefusal tells operators that a workload gets no more ports.
func (a *Allocator) noteRefusal(vip model.VIP, err error) {
	why, _, refused := rpc.PortsRefused(err)
	event := map[string]string{rpc.PortsExhausted: reason.PortsExhausted, rpc.PortsLimit: reason.PortLimitReached}[why]
	if !refused || event == "" {
		return
	}
	var refusal *connect.Error
	errors.As(err, &refusal)
	a.Events.Record(eventlog.Event{
		Kind: events.KindVIP, Object: vip.Name, Tenant: vip.Tenant, Warning: true, Reason: event, Message: refusal.Message(),
	})
}

// ReleasePorts takes back what a workload does not use any more. What it does not have is passed over: a call
// may be made again.
func (a *Allocator) ReleasePorts(ctx context.Context, r *weirv1.ReleasePortsRequest) (*weirv1.ReleasePortsResponse, error) {
	key, err := wire.SNATKeyFromProto(&weirv1.SNATKey{Vip: r.GetVip(), Address: r.GetAddress()})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	ranges, err := wire.RangesFromProto(r.GetRanges())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	ctx, cancel := context.WithTimeout(ctx, allocateTimeout)
	defer cancel()
	released, had := 0, snat.List{}
	_, err = a.Store.UpdateAs(ctx, store.Ports, func(s *store.State) (store.Change, error) {
		if _, err := clientOf(s, r.GetName(), key); err != nil {
			return store.Change{}, err
		}
		if s.Restored.Pending() {
			return store.Change{}, errRestored()
		}
		had = listOf(s, key)
		before := s.Ports.At(key)
		after := before.Release(ranges, a.Now())
		if released = len(before.Ranges) - len(after.Ranges); released == 0 {
			return store.Change{}, nil
		}
		return store.Change{Ports: map[model.SNATKey]snatport.Allocation{key: after}}, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	a.Metrics.released.Add(float64(released * model.RangePorts))
	now, err := a.allocation(ctx, key, had, r.GetHas())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.ReleasePortsResponse{Allocation: now}, nil
}

// ReclaimPorts has a workload's host give ranges back when their flows have ended.
func (a *Allocator) ReclaimPorts(ctx context.Context, r *weirv1.ReclaimPortsRequest) (*weirv1.ReclaimPortsResponse, error) {
	if err := compile.Known(r); err != nil {
		return nil, apierr.ToConnect(err)
	}
	ranges, err := wire.RangesFromProto(r.GetRanges())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	var next snatport.Allocation
	generation, err := a.Store.Update(ctx, func(s *store.State) (store.Change, error) {
		vip, there := s.VIPs.Get(r.GetName())
		if !there {
			return store.Change{}, apierr.NotFound("VIP", r.GetName(), s.VIPs, authz.CanViewVIP(ctx))
		}
		// The name may have come to another tenant since the call was permitted.
		if err := authz.PermitVIP(trust.FromContext(ctx), s, trust.Operator, vip.Name); err != nil {
			return store.Change{}, err
		}
		key, err := keyOf(s, vip, r.GetAddress())
		if err != nil {
			return store.Change{}, err
		}
		h, there := s.Ports.Get(key)
		if !there {
			return store.Change{}, &model.FieldError{Field: "address", Reason: fmt.Sprintf("%s has no ports of VIP %s", r.GetAddress(), vip.Name)}
		}
		if next, err = reclaim(h, ranges, r.GetCancel()); err != nil || next.Equal(h) {
			return store.Change{}, err
		}
		return store.Change{Ports: map[model.SNATKey]snatport.Allocation{key: next}}, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.ReclaimPortsResponse{Reclaim: wire.RangesToProto(next.Reclaim), Generation: uint64(generation)}, nil
}

// keyOf names the workload at an address, or the port block of a host.
func keyOf(s *store.State, vip model.VIP, who string) (model.SNATKey, error) {
	if address, err := netip.ParseAddr(who); err == nil {
		return model.SNATKey{VIP: vip.Address, Address: address.Unmap()}, nil
	}
	if node, there := s.Nodes.Get(who); there && node.Role == model.RoleHost {
		return model.BlockKey(vip.Address, who), nil
	}
	return model.SNATKey{}, &model.FieldError{Field: "address", Reason: fmt.Sprintf("must be an IP address, or a host for its port block, is %.64q", who)}
}

// reclaim returns h with ranges to be given back: all if none are named, or none after all.
func reclaim(h snatport.Allocation, ranges []model.Range, cancel bool) (snatport.Allocation, error) {
	if cancel {
		h.Reclaim = nil
		return h, nil
	}
	if len(ranges) == 0 {
		ranges = h.Ranges
	}
	next := slices.Clone(h.Reclaim)
	for i, r := range ranges {
		switch {
		case !slices.Contains(h.Ranges, r):
			return h, &model.FieldError{Field: fmt.Sprintf("ranges[%d]", i), Reason: fmt.Sprintf("%d (ports %d to %d) is not the workload's",
				r, r.First(), r.First()+model.RangePorts-1)}
		case !slices.Contains(next, r):
			next = append(next, r)
		}
	}
	slices.Sort(next)
	h.Reclaim = next
	return h, nil
}
