package agentd

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/cilium/ebpf/ringbuf"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// Translation is what the daemon asks of the data plane's source NAT.
type Translation interface {
	SetSNAT(wanted []model.HostSNAT, excepted []netip.Prefix) error
	AssignPort(flow agent.Flow) (external netip.AddrPort, found bool, err error)
	OpenFlow(flow agent.Flow, sent uint32) (opened bool, err error)
	EndHeldFlow(flow agent.Flow) (ended bool, err error)
	Unhold(workload uint32, packets int) error
	RefusePorts(dip netip.Addr, until time.Duration) error
	SNATUse(whole bool) ([]agent.SNATUse, error)
}

// Sender puts packets on the wire, and on the way to workloads.
type Sender interface {
	Leave(to netip.Addr, packet []byte) error
	Tell(to netip.Addr, packet []byte) error
}

// PortManager is where ports come from.
type PortManager interface {
	AllocatePorts(ctx context.Context, request *weirv1.AllocatePortsRequest) (*weirv1.AllocatePortsResponse, error)
	ReleasePorts(ctx context.Context, request *weirv1.ReleasePortsRequest) (*weirv1.ReleasePortsResponse, error)
}

// PortsConfig is what Ports work with. Without a Datapath there is no source NAT.
type PortsConfig struct {
	Datapath Translation
	Sender   Sender
	Manager  PortManager
	// Read waits for the next notice of the data plane, until the deadline.
	Read     func(deadline time.Time) (agent.Notice, error)
	Live     []model.HostSNAT // that the data plane holds from before a restart
	Excepted []netip.Prefix   // the managers' addresses: nobody's connections to them are translated
	MTU      func() int       // of the uplink
	Bounds   HoldBounds
}

// HoldBounds bound what waits for a port: bytes and packets of one workload, and the time of each flow.
type HoldBounds struct {
	Packets, Bytes int
	Time           time.Duration
}

// DefaultHoldBounds suit a burst of new connections while the manager changes its leader.
func DefaultHoldBounds() HoldBounds {
	return HoldBounds{Packets: agent.DefaultMaxHeld, Bytes: 256 << 10, Time: 5 * time.Second}
}

// Intervals of what ports do.
const (
	portsTick       = 50 * time.Millisecond
	releaseInterval = time.Second
	requestTimeout  = 4 * time.Second
	// refusedFor is how long nobody waits after the manager has said that there are no more ports.
	refusedFor = time.Second
	// retryAfter is when a manager that could not be reached is asked again.
	retryAfter = 200 * time.Millisecond
	// refusalsATick bounds the resets and ICMP errors that one workload is sent in a portsTick.
	refusalsATick = 16
)

// ports gives workloads' own connections their ports: it holds what waits, asks the manager, and gives
// back what nobody uses.
type ports struct {
	config PortsConfig
	name   string // of the node
	log    *slog.Logger
	listed func(addresses []netip.Addr) // told of the workloads that there are

	asking sync.WaitGroup

	mu        sync.Mutex
	workloads map[netip.Addr]*portUser
	failure   string // of SetSNAT
	tells     bool   // the manager asks for the ranges of all workloads
}

// portUser is a workload with source NAT.
type portUser struct {
	config    model.HostSNAT
	releasing map[model.Range]closedRange
	queue     []*heldFlow // in the order in which they came
	packets   int         // in queue
	bytes     int

	asking    bool
	wants     bool // more ports, ahead of need
	askAfter  time.Time
	refusals  int // in this tick
	requests  uint64
	waited    uint64 // flows
	exhausted uint64 // packets
	refused   bool   // the last word of the manager was that there are none
}

// closedRange is a range that takes no new flow, for nobody uses it.
type closedRange struct {
	since   time.Time
	offered bool // to the manager, which may have taken it back: it opens no more
}

// heldFlow is a flow that waits for a port.
type heldFlow struct {
	flow  agent.Flow
	since time.Time // it waits for a port, or has one and waits to be opened
	taken uint32    // packets that came here
	held  []agent.Notice
	port  netip.AddrPort // not set: none yet
}

func newPorts(config PortsConfig, name string, log *slog.Logger, listed func([]netip.Addr)) *ports {
	if config.Bounds == (HoldBounds{}) {
		config.Bounds = DefaultHoldBounds()
	}
	p := &ports{config: config, name: name, log: log, listed: listed, workloads: make(map[netip.Addr]*portUser)}
	for _, s := range config.Live {
		p.workloads[s.Key.Address] = &portUser{config: s, releasing: make(map[model.Range]closedRange)}
	}
	return p
}

// apply takes what a message of the manager says of source NAT.
func (p *ports) apply(update rpc.HostUpdate) error {
	if p.config.Datapath == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tells = update.TellRanges
	if len(update.SNAT)+len(update.SNATRemoved) == 0 && !update.SNATSnapshot {
		return nil
	}
	if update.SNATSnapshot {
		wanted := make(map[netip.Addr]model.SNATKey, len(update.SNAT))
		for _, s := range update.SNAT {
			wanted[s.Key.Address] = s.Key
		}
		for dip, user := range p.workloads {
			if wanted[dip] != user.config.Key {
				p.forget(dip)
			}
		}
	}
	for _, key := range update.SNATRemoved {
		if user := p.workloads[key.Address]; user != nil && user.config.Key == key {
			p.forget(key.Address)
		}
	}
	for _, s := range update.SNAT {
		user := p.workloads[s.Key.Address]
		if user != nil && user.config.Key != s.Key {
			p.forget(s.Key.Address)
			user = nil
		}
		if user == nil {
			user = &portUser{releasing: make(map[model.Range]closedRange)}
			p.workloads[s.Key.Address] = user
		}
		// A manager that is behind, or an answer that was faster: what was given meanwhile is in use.
		if has := user.config; s.Cluster == has.Cluster && s.Written < has.Written {
			s.Ranges, s.Reclaim, s.Written = has.Ranges, has.Reclaim, has.Written
		}
		user.config, user.refused = s, false
		maps.DeleteFunc(user.releasing, func(r model.Range, _ closedRange) bool { return !slices.Contains(s.Ranges, r) })
	}
	return p.set()
}

// forget lets go of a workload that is not listed any more, and of what waits.
func (p *ports) forget(dip netip.Addr) {
	user := p.workloads[dip]
	for _, held := range user.queue {
		p.unhold(held, len(held.held))
	}
	delete(p.workloads, dip)
}

// set brings what is wanted to the data plane.
func (p *ports) set() error {
	wanted := make([]model.HostSNAT, 0, len(p.workloads))
	addresses := make([]netip.Addr, 0, len(p.workloads))
	for dip, user := range p.workloads {
		config := user.config
		config.Reclaim = slices.Clone(config.Reclaim)
		for r := range user.releasing {
			config.Reclaim = append(config.Reclaim, r)
		}
		wanted, addresses = append(wanted, config), append(addresses, dip)
	}
	slices.SortFunc(wanted, func(a, b model.HostSNAT) int { return a.Key.Compare(b.Key) })
	p.listed(addresses)
	err := p.config.Datapath.SetSNAT(wanted, p.config.Excepted)
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	if failure != p.failure && err != nil {
		p.log.Error("source NAT refused", "err", err)
	}
	p.failure = failure
	return err
}

// run follows what the data plane tells until ctx ends.
func (p *ports) run(ctx context.Context) error {
	if p.config.Datapath == nil {
		<-ctx.Done()
		return nil
	}
	defer p.asking.Wait()
	tick, release := time.Now(), time.Now()
	for ctx.Err() == nil {
		notice, err := p.config.Read(time.Now().Add(portsTick))
		switch {
		case errors.Is(err, ringbuf.ErrClosed):
			return nil
		case err == nil:
			p.take(ctx, notice, time.Now())
		}
		if now := time.Now(); now.Sub(tick) >= portsTick {
			p.tick(ctx, now)
			tick = now
		}
		if now := time.Now(); now.Sub(release) >= releaseInterval {
			p.release(ctx, now)
			release = now
		}
	}
	return nil
}

// take handles a notice.
func (p *ports) take(ctx context.Context, n agent.Notice, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	user := p.workloads[n.Workload]
	if user == nil {
		if n.Kind == agent.NoticeHold { // it waits for nothing
			_, err := p.config.Datapath.EndHeldFlow(n.Flow)
			p.warn("end the wait of a packet", errors.Join(p.config.Datapath.Unhold(n.Number, 1), err))
		}
		return
	}
	switch n.Kind {
	case agent.NoticeLow:
		user.wants = true
		p.ask(ctx, user, now)
	case agent.NoticeRefused:
		user.exhausted++
		p.refuse(user, n)
	case agent.NoticeFull:
		p.refuse(user, n)
	case agent.NoticeHold:
		p.hold(user, n, now)
		p.serve(ctx, user, now)
	}
}

// tick ends waits that have been too long, and asks where that failed before.
func (p *ports) tick(ctx context.Context, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, user := range p.workloads {
		user.refusals = 0
		for _, held := range slices.Clone(user.queue) {
			if now.Sub(held.since) > p.config.Bounds.Time {
				p.giveUp(user, held)
			}
		}
		if len(user.queue) > 0 {
			p.serve(ctx, user, now)
		} else if user.wants {
			p.ask(ctx, user, now)
		}
	}
}

func (p *ports) warn(what string, err error) {
	if err != nil {
		p.log.Warn("source NAT: can't "+what, "err", err)
	}
}

// isRefusal says whether the manager has answered that there are no ports, other than that it could not
// be asked.
func isRefusal(err error) bool {
	code := connect.CodeOf(err)
	var refusal *rpc.Error
	if errors.As(err, &refusal) {
		code = refusal.Code
	}
	switch code {
	case connect.CodeResourceExhausted, connect.CodeFailedPrecondition, connect.CodeNotFound, connect.CodePermissionDenied,
		connect.CodeInvalidArgument, connect.CodeUnimplemented:
		return true
	}
	return false
}
