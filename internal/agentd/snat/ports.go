package snat

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/boottime"
	agentsnat "github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/wire"
)

// Translation is the source NAT of the data plane.
type Translation interface {
	SetSNAT(wanted []model.HostSNAT, excepted []netip.Prefix) error
	AssignPort(flow agentsnat.Flow) (external netip.AddrPort, found bool, err error)
	OpenFlow(flow agentsnat.Flow, sent uint32) (opened bool, err error)
	EndQueuedFlow(flow agentsnat.Flow) (ended bool, err error)
	ReleaseQueued(workload uint32, packets int) error
	RefusePorts(dip netip.Addr, until time.Duration) error
	SNATUse(whole bool) ([]agentsnat.Use, error)
}

// Sender sends packets from user space.
type Sender interface {
	// Transmit sends a packet to the network, Reject one to a workload.
	Transmit(to netip.Addr, packet []byte) error
	Reject(to netip.Addr, packet []byte) error
}

// Manager allocates ports and takes them back.
type Manager interface {
	AllocatePorts(ctx context.Context, request *weirv1.AllocatePortsRequest) (*weirv1.AllocatePortsResponse, error)
	ReleasePorts(ctx context.Context, request *weirv1.ReleasePortsRequest) (*weirv1.ReleasePortsResponse, error)
}

// Config configures source NAT. Without a Datapath there is none.
type Config struct {
	Datapath Translation
	Sender   Sender
	Manager  Manager
	// Read waits for the next notice of the data plane, until the deadline. Once that is closed it fails with fs.ErrClosed.
	Read     func(deadline time.Time) (agentsnat.Notice, error)
	Live     []model.HostSNAT  // of the data plane at the start
	Excepted []netip.Prefix    // the managers' addresses: connections to them are not translated
	MSS      func(v6 bool) int // the most that a workload's SYN may announce; 0: not known
	Bounds   QueueBounds
}

// QueueBounds bounds the packets that are queued for a port: packets and bytes of one workload, and the time of each flow.
type QueueBounds struct {
	Packets, Bytes int
	Time           time.Duration
}

// DefaultQueueBounds suits a burst of new connections during a change of the leader.
func DefaultQueueBounds() QueueBounds {
	return QueueBounds{Packets: agentsnat.DefaultMaxQueued, Bytes: 256 << 10, Time: 5 * time.Second}
}

// Intervals and bounds of ports.
const (
	portsTick       = 50 * time.Millisecond
	releaseInterval = time.Second
	requestTimeout  = 4 * time.Second
	blockTimeout    = 12 * time.Second // longer than the manager waits for muxes: an answer that is lost costs a grant for its rest
	// refusedFor is how long new flows are rejected at once after the manager refused ports.
	refusedFor = time.Second
	// retryAfter is the time between two requests while the manager can't be reached.
	retryAfter = 200 * time.Millisecond
	// maxRefusalsPerTick bounds the resets and ICMP errors to one workload in a portsTick.
	maxRefusalsPerTick = 16
)

// Ports assigns source NAT ports to workloads' flows: it queues packets without a port, requests ports from the manager,
// and releases unused ranges.
type Ports struct {
	config Config
	name   string // of the node
	log    *slog.Logger
	listed func(addresses []netip.Addr) // called with the workloads that have source NAT

	asking sync.WaitGroup

	now func() time.Duration // CLOCK_BOOTTIME

	mu            sync.Mutex
	workloads     map[netip.Addr]*snatClient
	blocks        map[netip.Addr]*hostBlock // by VIP
	failure       string                    // of SetSNAT
	reportsRanges bool                      // the manager wants the ranges of all workloads in reports
}

// snatClient is a workload with source NAT.
type snatClient struct {
	config    model.HostSNAT // with the ranges that are its own; those of the host's block are in its pool
	adopted   bool           // Ranges are what the tables show, those of the block among them
	releasing map[model.Range]closedRange
	queue     []*queuedFlow // in order of arrival
	packets   int           // in queue
	bytes     int

	requesting bool
	wantsPorts bool // more ports, ahead of need
	retryAt    time.Time
	refusals   int // in this tick
	requests   uint64
	queued     uint64 // flows
	exhausted  uint64 // packets
	refused    bool   // the manager refused the last request
}

// closedRange is a range that is closed to new flows, before it is released.
type closedRange struct {
	since   time.Time // zero: the tables show it since the last look
	offered bool      // to the manager, which may have released it: it is not opened again
}

// queuedFlow is a flow that waits for a port.
type queuedFlow struct {
	flow     agentsnat.Flow
	since    time.Time // when it was queued, or got its port
	received uint32    // packets that reached user space
	notices  []agentsnat.Notice
	port     netip.AddrPort // invalid: none yet
}

// New adopts the state of the data plane, and changes nothing. name is the node's; listed is called with the workloads that
// have source NAT.
func New(config Config, name string, log *slog.Logger, listed func([]netip.Addr)) *Ports {
	if config.Bounds == (QueueBounds{}) {
		config.Bounds = DefaultQueueBounds()
	}
	p := &Ports{
		config: config, name: name, log: log, listed: listed, now: boottime.Since,
		workloads: make(map[netip.Addr]*snatClient), blocks: make(map[netip.Addr]*hostBlock),
	}
	for _, s := range config.Live {
		p.workloads[s.Key.Address] = &snatClient{config: s, adopted: true, releasing: make(map[model.Range]closedRange)}
	}
	return p
}

// Apply applies the source NAT part of a message of the manager.
func (p *Ports) Apply(update wire.HostUpdate) error {
	if p.config.Datapath == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reportsRanges = update.TellRanges
	if len(update.SNAT)+len(update.SNATRemoved) == 0 && !update.SNATSnapshot {
		return nil
	}
	lending{p}.dropRemoved(update)
	for _, s := range update.SNAT {
		if s.Key.IsBlock() {
			continue
		}
		client := p.workloads[s.Key.Address]
		if client != nil && client.config.Key != s.Key {
			p.removeWorkload(s.Key.Address)
			client = nil
		}
		if client == nil {
			client = &snatClient{releasing: make(map[model.Range]closedRange)}
			p.workloads[s.Key.Address] = client
		}
		// The update is older than the last answer to a request: ranges allocated since are in use.
		if has := client.config; s.Cluster == has.Cluster && s.Written < has.Written {
			s.Ranges, s.Reclaim, s.Written = has.Ranges, has.Reclaim, has.Written
		}
		lending{p}.adopt(client, s.Ranges)
		client.config, client.refused = s, false
	}
	lending{p}.applyBlocks(update)
	for _, client := range p.workloads {
		client.forgetReleased(lending{p}.lentTo(client))
	}
	return p.applyPorts()
}

// forgetReleased forgets what was to be released of the ranges that a workload has no more.
func (c *snatClient) forgetReleased(lent []model.Range) {
	maps.DeleteFunc(c.releasing, func(r model.Range, _ closedRange) bool {
		return !slices.Contains(c.config.Ranges, r) && !slices.Contains(lent, r)
	})
}

// removeWorkload removes a workload and its queued packets.
func (p *Ports) removeWorkload(dip netip.Addr) {
	client := p.workloads[dip]
	for _, held := range client.queue {
		p.releaseQueued(held, len(held.notices))
	}
	if b := p.blocks[client.config.Key.VIP]; b != nil {
		lent, _ := lending{p}.lent(client)
		b.pool.Return(dip, lent, p.now())
	}
	delete(p.workloads, dip)
}

// applyPorts writes the workloads and their ranges to the data plane.
func (p *Ports) applyPorts() error {
	wanted := make([]model.HostSNAT, 0, len(p.workloads))
	addresses := make([]netip.Addr, 0, len(p.workloads))
	for dip, client := range p.workloads {
		config := client.config
		lent, reclaim := lending{p}.lent(client)
		config.Ranges, config.Reclaim = slices.Concat(config.Ranges, lent), slices.Concat(config.Reclaim, reclaim)
		slices.Sort(config.Ranges)
		for r := range client.releasing {
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
	if p.failure != "" && err == nil {
		for _, b := range p.blocks {
			b.pool.Rest(p.now()) // the tables showed until now what workloads had returned
		}
		for _, client := range p.workloads {
			for r, closed := range client.releasing {
				client.releasing[r] = closedRange{offered: closed.offered}
			}
		}
	}
	p.failure = failure
	return err
}

// Run handles notices of the data plane until ctx ends.
func (p *Ports) Run(ctx context.Context) error {
	if p.config.Datapath == nil {
		<-ctx.Done()
		return nil
	}
	defer p.asking.Wait()
	tick, release := time.Now(), time.Now()
	for ctx.Err() == nil {
		notice, err := p.config.Read(time.Now().Add(portsTick))
		switch {
		case errors.Is(err, fs.ErrClosed):
			return nil
		case err == nil:
			p.handleNotice(ctx, notice, time.Now())
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

// handleNotice handles a notice.
func (p *Ports) handleNotice(ctx context.Context, n agentsnat.Notice, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	client := p.workloads[n.Workload]
	if client == nil {
		if n.Kind == agentsnat.NoticeQueued { // no port will come for it
			_, err := p.config.Datapath.EndQueuedFlow(n.Flow)
			p.warn("release a queued packet", errors.Join(p.config.Datapath.ReleaseQueued(n.Number, 1), err))
		}
		return
	}
	switch n.Kind {
	case agentsnat.NoticeLow:
		client.wantsPorts = true
		p.requestPorts(ctx, client, now)
	case agentsnat.NoticeRefused:
		client.exhausted++
		p.rejectPacket(client, n)
	case agentsnat.NoticeFull:
		p.rejectPacket(client, n)
	case agentsnat.NoticeQueued:
		p.enqueue(client, n, now)
		p.assignPorts(ctx, client, now)
	}
}

// tick rejects flows that were queued for too long, and repeats requests that failed.
func (p *Ports) tick(ctx context.Context, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, client := range p.workloads {
		client.refusals = 0
		for _, held := range slices.Clone(client.queue) {
			if now.Sub(held.since) > p.config.Bounds.Time {
				p.rejectFlow(client, held)
			}
		}
		if len(client.queue) > 0 {
			p.assignPorts(ctx, client, now)
		} else if client.wantsPorts {
			p.requestPorts(ctx, client, now)
		}
	}
}

func (p *Ports) warn(what string, err error) {
	if err != nil {
		p.log.Warn("source NAT: can't "+what, "err", err)
	}
}

// isRefusal says whether err is the manager's refusal, and not a failure to reach it.
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
