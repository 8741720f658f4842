package snat

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/agentd/snat/block"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/wire"
)

// lending is what Ports does with the host's port blocks. Its lock is held.
type lending struct{ *Ports }

// hostBlock is the port block that the host has of a VIP: workloads get ranges of it without a call. Without one, as of a
// manager of before, each asks the manager.
type hostBlock struct {
	config model.HostSNAT // as the manager tells it
	pool   block.Pool

	granted    int // ranges of the last grant
	requesting bool
	refused    bool // the last request
	retryAt    time.Time
	aheadAt    time.Time // when it is asked again without a workload that needs it
	requests   uint64
}

// aheadAfter is how long nothing is asked for ahead of need after a refusal: many hosts share a VIP that has no port left.
const aheadAfter = time.Minute

// lent are the ranges that a workload has of the host's block, and those of them that the manager reclaims.
func (p lending) lent(c *snatClient) (ranges, reclaim []model.Range) {
	b := p.blocks[c.config.Key.VIP]
	if b == nil {
		return nil, nil
	}
	return b.pool.Of(c.config.Key.Address)
}

// take takes over what the manager answers that a workload has, unless an update of the stream that is as new has come
// before it.
func (p lending) take(c *snatClient, has *weirv1.PortAllocation) error {
	list, err := wire.PortAllocationFromProto(has, snat.List{}) // a whole one: the request names none that the workload has
	if err != nil {
		return err
	}
	if list.Written > c.config.Written {
		p.adopt(c, list.Ranges)
		takeRanges(&c.config, list)
	}
	c.forgetReleased(p.lentTo(c))
	return nil
}

// room is how many ranges more a workload may have.
func (p lending) room(c *snatClient) int {
	return int(c.config.MaxPorts)/model.RangePorts - len(c.config.Ranges) - len(p.lentTo(c))
}

// lentTo are the ranges that a workload has of the host's block.
func (p lending) lentTo(c *snatClient) []model.Range {
	ranges, _ := p.lent(c)
	return ranges
}

// blockOf is the block of a VIP, which is made if there is none yet.
func (p lending) blockOf(vip netip.Addr) *hostBlock {
	b := p.blocks[vip]
	if b == nil {
		b = &hostBlock{}
		p.blocks[vip] = b
	}
	return b
}

// adopt has what the tables show of a workload beside its own ranges be of the host's block, after a restart.
func (p lending) adopt(c *snatClient, own []model.Range) {
	if !c.adopted {
		return
	}
	c.adopted = false
	var rest []model.Range
	for _, r := range c.config.Ranges {
		if !slices.Contains(own, r) {
			rest = append(rest, r)
		}
	}
	if len(rest) > 0 {
		p.blockOf(c.config.Key.VIP).pool.Adopt(c.config.Key.Address, rest)
	}
}

// dropRemoved removes the workloads and blocks that a message removes.
func (p lending) dropRemoved(update wire.HostUpdate) {
	if update.SNATSnapshot {
		wanted := make(map[netip.Addr]model.SNATKey, len(update.SNAT))
		for _, s := range update.SNAT {
			wanted[s.Key.Address] = s.Key
		}
		for dip, client := range p.workloads {
			if wanted[dip] != client.config.Key {
				p.removeWorkload(dip)
			}
		}
	}
	for _, key := range update.SNATRemoved {
		if b := p.blocks[key.VIP]; key.IsBlock() && b != nil && b.config.Key == key {
			delete(p.blocks, key.VIP)
		}
		if client := p.workloads[key.Address]; client != nil && client.config.Key == key {
			p.removeWorkload(key.Address)
		}
	}
}

// applyBlocks takes over what a message tells of blocks. A range of a block that a workload has as its own, by an older
// list, it has of the block.
func (p lending) applyBlocks(update wire.HostUpdate) {
	listed := map[netip.Addr]bool{}
	for _, s := range update.SNAT {
		if !s.Key.IsBlock() {
			continue
		}
		listed[s.Key.VIP] = true
		b := p.blockOf(s.Key.VIP)
		if has := b.config; s.Cluster == has.Cluster && s.Written < has.Written {
			s.Ranges, s.Reclaim, s.Written = has.Ranges, has.Reclaim, has.Written
		}
		b.config, b.refused = s, false
		b.pool.Replace(s.Ranges, s.Reclaim, p.now())
	}
	if update.SNATSnapshot {
		maps.DeleteFunc(p.blocks, func(vip netip.Addr, _ *hostBlock) bool { return !listed[vip] })
	}
	for dip, client := range p.workloads {
		if b := p.blocks[client.config.Key.VIP]; b != nil && b.pool.Told() && slices.ContainsFunc(client.config.Ranges, b.pool.Has) {
			b.pool.Adopt(dip, client.config.Ranges)
			client.config.Ranges = slices.DeleteFunc(slices.Clone(client.config.Ranges), b.pool.Has)
			client.config.Reclaim = slices.DeleteFunc(slices.Clone(client.config.Reclaim), b.pool.Has)
		}
	}
}

// takeRanges takes over which ranges a newer answer says that there are.
func takeRanges(config *model.HostSNAT, list snat.List) {
	config.Ranges, config.Written = list.Ranges, list.Written
	config.Reclaim = slices.DeleteFunc(slices.Clone(config.Reclaim), func(r model.Range) bool { return !slices.Contains(list.Ranges, r) })
}

// list is the block's list of ranges, as the manager told it.
func (b *hostBlock) list() snat.List {
	return snat.List{Written: b.config.Written, Ranges: b.config.Ranges}
}

// takeBlock takes over what the manager answers that the block has, maybe as what differs from the list that the request
// named, and which ranges of it are freshly given. What is refused of an answer comes by the stream.
func (p lending) takeBlock(b *hostBlock, has *weirv1.PortAllocation, named snat.List, given []uint32) error {
	list, err := wire.PortAllocationFromProto(has, named)
	if err != nil {
		return err
	}
	fresh, err := wire.RangesFromProto(given)
	if err != nil {
		return err
	}
	if list.Written > b.config.Written {
		takeRanges(&b.config, list)
		b.pool.Replace(b.config.Ranges, b.config.Reclaim, p.now())
	}
	b.pool.Refresh(fresh, p.now())
	if len(fresh) > 0 {
		b.granted = len(fresh)
	}
	return nil
}

// lend gives a workload ranges of the block, as many as what waits needs, and asks for more before the block is used up. It
// gives none while the tables are not as they are to be: another workload may have them there.
func (p lending) lend(ctx context.Context, b *hostBlock, client *snatClient, now time.Time) (lent bool) {
	if p.failure != "" {
		client.wantsPorts = true
		return false
	}
	need := min((max(len(client.queue), 1)+model.RangePorts-1)/model.RangePorts, p.room(client))
	given := b.pool.Give(client.config.Key.Address, need, p.now())
	lacks := need - len(given)
	if lacks > 0 && p.askForBlock(ctx, b, lacks, now) {
		client.requests++
	} else if lacks == 0 {
		p.askForBlock(ctx, b, 0, now)
	}
	if len(given) > 0 {
		client.wantsPorts, client.refused = false, false
		return p.applyPorts() == nil
	}
	client.wantsPorts = true
	if b.refused && now.Before(b.retryAt) {
		p.refuse(client, now)
	}
	return false
}

// refuse has a workload be without more ports for a while.
func (p lending) refuse(client *snatClient, now time.Time) {
	client.refused, client.retryAt, client.wantsPorts = true, now.Add(refusedFor), len(client.queue) > 0
	if len(client.queue) > 0 {
		p.rejectQueue(client, now)
	}
}

// askForBlock asks the manager for more of a block, if workloads lack ranges or few are free, one request at a time, and
// says whether it does. Ahead of need it asks for no more than the manager gives.
func (p lending) askForBlock(ctx context.Context, b *hostBlock, lacks int, now time.Time) bool {
	if b.requesting || now.Before(b.retryAt) {
		return false
	}
	if lacks == 0 && (now.Before(b.aheadAt) || !b.pool.IsLow(b.granted, p.now()) || len(b.config.Ranges) >= p.blockLimit(b)) {
		return false
	}
	b.requesting = true
	b.requests++
	key, has := b.config.Key, b.list()
	p.asking.Go(func() {
		bounded, cancel := context.WithTimeout(ctx, blockTimeout) // the call alone: its answer may have more asked for
		defer cancel()
		answer, err := p.config.Manager.AllocatePorts(bounded, &weirv1.AllocatePortsRequest{
			Name: p.name, Vip: key.VIP.String(), Address: key.Address.String(), Ports: uint32(max(lacks, 1) * model.RangePorts),
			Has: has.Digest(),
		})
		p.handleBlock(ctx, key, has, answer, err)
	})
	return true
}

// blockLimit is how many ranges the block may have: with what workloads have of their own no more than these may.
func (p lending) blockLimit(b *hostBlock) (limit int) {
	for _, client := range p.workloads {
		if client.config.Key.VIP == b.config.Key.VIP {
			limit += int(client.config.MaxPorts)/model.RangePorts - len(client.config.Ranges)
		}
	}
	return limit
}

// handleBlock handles the manager's answer to a request for more of a block that had a list. It takes the lock.
func (p lending) handleBlock(ctx context.Context, key model.SNATKey, had snat.List, answer *weirv1.AllocatePortsResponse, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	b := p.blocks[key.VIP]
	if b == nil || b.config.Key != key {
		return
	}
	b.requesting = false
	reason, after, _ := rpc.PortsRefused(err)
	switch {
	case mayRetry(reason, err):
		b.retryAt = now.Add(max(after, retryAfter))
		p.log.Debug("can't request ports of a block, trying again", "vip", key.VIP, "err", err)
		return
	case err != nil:
		if !b.refused {
			p.log.Warn("no more ports for the host's block", "vip", key.VIP, "err", err)
		}
		b.refused, b.retryAt, b.aheadAt = true, now.Add(max(after, refusedFor)), now.Add(aheadAfter)
	default:
		b.refused = false
		p.warn("take ports of a block", p.takeBlock(b, answer.GetAllocation(), had, answer.GetGiven()))
	}
	p.warn("take ports of a block", p.applyPorts())
	for _, dip := range slices.SortedFunc(maps.Keys(p.workloads), netip.Addr.Compare) {
		switch client := p.workloads[dip]; {
		case client.config.Key.VIP != key.VIP:
		case len(client.queue) > 0:
			p.assignPorts(ctx, client, now)
		case client.wantsPorts:
			p.requestPorts(ctx, client, now)
		}
	}
}

// returnRanges has those ranges of the block rest that a workload does not use, and returns its own.
func (p lending) returnRanges(client *snatClient, unused []model.Range) (own []model.Range) {
	b := p.blocks[client.config.Key.VIP]
	if b == nil {
		return unused
	}
	for _, r := range unused {
		if !b.pool.Has(r) {
			own = append(own, r)
			continue
		}
		b.pool.Return(client.config.Key.Address, []model.Range{r}, p.now())
		delete(client.releasing, r)
	}
	return own
}

// balanceBlocks gives back what the host does not need of its blocks, and asks for more where few are free.
func (p lending) balanceBlocks(ctx context.Context, now time.Time) {
	for _, b := range p.blocks {
		if !b.pool.Told() || b.requesting || p.failure != "" { // the tables may show what the pool has back
			continue
		}
		if due := b.pool.Offer(b.pool.Stock(b.granted), b.config.IdleTimeout, p.now()); len(due) > 0 {
			p.releaseOfBlock(ctx, b, due)
		} else if !now.Before(b.retryAt) {
			p.askForBlock(ctx, b, 0, now)
		}
	}
}

// releaseOfBlock gives ranges of a block back in a call of its own. Until the manager has answered no workload gets them.
func (p lending) releaseOfBlock(ctx context.Context, b *hostBlock, due []model.Range) {
	b.requesting = true
	key, has := b.config.Key, b.list()
	p.asking.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		answer, err := p.config.Manager.ReleasePorts(ctx, &weirv1.ReleasePortsRequest{
			Name: p.name, Vip: key.VIP.String(), Address: key.Address.String(), Ranges: wire.RangesToProto(due), Has: has.Digest(),
		})
		p.mu.Lock()
		defer p.mu.Unlock()
		b := p.blocks[key.VIP]
		if b == nil || b.config.Key != key {
			return
		}
		if b.requesting = false; err != nil {
			p.log.Debug("can't release ports of a block, trying again", "vip", key.VIP, "err", err)
			return
		}
		p.warn("release ports of a block", p.takeBlock(b, answer.GetAllocation(), has, nil))
	})
}

// uses are the host's blocks for reports.
func (p lending) uses() (all []*weirv1.SNATUse) {
	for _, vip := range slices.SortedFunc(maps.Keys(p.blocks), netip.Addr.Compare) {
		b := p.blocks[vip]
		if !b.pool.Told() {
			continue
		}
		ranges, lent := b.pool.Ranges()
		u := &weirv1.SNATUse{
			Vip: vip.String(), Address: b.config.Key.Address.String(), Ranges: uint32(len(ranges)), LentRanges: uint32(lent),
			Written: uint64(b.config.Written), Digest: snat.Digest(vip, b.config.Tunnel, ranges...), Requests: b.requests,
		}
		if p.reportsRanges {
			u.RangeNumbers = wire.RangesToProto(ranges)
		}
		all = append(all, u)
	}
	return all
}
