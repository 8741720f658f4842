package multipath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/multipath"
)

const (
	// unconfirmedLife is how long a subflow that others have is remembered before they have said that its client is there.
	unconfirmedLife = 30 * time.Second
	// closingLife is how long one may be silent that its client has closed: as a session that is closing.
	closingLife = 2 * time.Minute
)

// deadLife is how long a token of a workload is kept when its connection has no session: it may be a moment that the sweep missed.
// Until then others are not told of it.
const deadLife = multipath.RefreshEvery

// coarse is more than the programs' clock is behind.
const coarse = time.Second

// Report is what a sweep found.
type Report struct {
	Endpoints                          int // with multipath
	Tokens, Names, Joined, Unconfirmed int
	Refused                            uint64 // rows that VIPs did not get, since the tables were made
	Unserved                           int    // endpoints whose subflows find nobody: their tenant has its share
}

// Own is a token of a workload of this host, and where it is to be told.
type Own struct {
	Name   multipath.Name
	Tunnel netip.Addr
	Client netip.AddrPort // of one of the connection's subflows
	Homes  [2]netip.Addr
}

// Stale is a token that this host keeps for another one, which has not refreshed it.
type Stale struct {
	Name   multipath.Name
	Tunnel netip.Addr // whose host is to be asked
	From   netip.Addr // a tunnel of the endpoint on this host
	Client netip.AddrPort
}

// now is the programs' clock.
func now() (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, fmt.Errorf("read clock: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// SweepMultipath keeps the tokens of connections that live, removes rows that count no more, and sets quotas by what is left. It
// runs beside packets.
func (d *Directory) SweepMultipath() (Report, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	report := Report{Endpoints: len(d.endpoints), Unserved: d.unserved}
	if len(d.endpoints) == 0 && (d.empty || !d.read) { // nothing is left of the last one; or nobody has said yet which there are
		return report, nil
	}
	clock, err := now()
	if err != nil {
		return report, err
	}
	made, err := d.usages()
	if err != nil {
		return report, err
	}
	used := make(map[netip.Addr]*[tables]int, len(made))
	for vip, row := range made {
		used[vip] = &[tables]int{}
		report.Refused += refusedOf(row)
	}
	report.Refused += d.refused
	count := func(vip bpf.AgentAddress, table bpf.AgentMultipathTable) {
		if counts := used[bpf.FromAddress(vip)]; counts != nil {
			counts[table]++
		}
	}
	owners, err := d.liveTokens()
	if err != nil {
		return report, err
	}
	if len(d.endpoints) == 0 {
		clock, owners = math.MaxInt64, nil // nothing counts any more
	}
	owned := map[bpf.AgentMultipathName]bool{} // that have a row of a live connection
	lives := func(key bpf.AgentMultipathName, row bpf.AgentMultipathHolder) bool {
		live := d.isLive(key, row, owners)
		if live {
			owned[key] = true
		}
		return live
	}
	report.Tokens, err = sweepHolders(d.objects.MptcpTokens, clock, lives, func(vip bpf.AgentAddress) { count(vip, bpf.AgentMultipathTableMULTIPATH_TOKENS) })
	if err != nil {
		return report, err
	}
	report.Names, err = sweepHolders(d.objects.MptcpNames, clock, nil, func(vip bpf.AgentAddress) { count(vip, bpf.AgentMultipathTableMULTIPATH_NAMES) })
	if err != nil {
		return report, err
	}
	report.Joined, err = d.sweepJoined(d.objects.MptcpJoined, clock, 0, func(vip bpf.AgentAddress) { count(vip, bpf.AgentMultipathTableMULTIPATH_JOINED) })
	if err != nil {
		return report, err
	}
	report.Unconfirmed, err = d.sweepJoined(d.objects.MptcpJoining, clock, unconfirmedLife, func(vip bpf.AgentAddress) { count(vip, bpf.AgentMultipathTableMULTIPATH_JOINING) })
	if err != nil {
		return report, err
	}
	d.empty = report.Tokens+report.Names+report.Joined+report.Unconfirmed == 0
	return report, d.setQuotas(used, made, owners, owned)
}

// refusedOf is how many rows a VIP did not get.
func refusedOf(row bpf.AgentMultipathUsage) (refused uint64) {
	for _, n := range row.Refused {
		refused += n
	}
	return refused
}

// setQuotas sets quotas by the rows that VIPs have, and by tokens that it puts back.
func (d *Directory) setQuotas(used map[netip.Addr]*[tables]int, made map[netip.Addr]bpf.AgentMultipathUsage, owners map[tokenOf]owner, owned map[bpf.AgentMultipathName]bool) error {
	tenants := map[netip.Addr]string{}
	for key, e := range d.endpoints {
		tenants[key.VIP] = e.tenant
	}
	quotas := d.quotas(tenants, used, made)
	if err := d.restore(owners, owned, quotas, made); err != nil {
		return err
	}
	for vip, quota := range quotas {
		if err := d.objects.MptcpQuotas.Put(bpf.ToAddress(vip), quota); err != nil {
			return fmt.Errorf("set the quota of tokens of %s: %w", vip, err)
		}
	}
	return nil
}

// tokenOf names a token of a workload's connection by a VIP: sessions do not tell the endpoint, and another workload may have the
// same token.
type tokenOf struct {
	vip, dip bpf.AgentAddress
	token    uint32
}

// liveTokens are those of connections that live, each with one of its sessions: not of one that is over, or whose client has not
// proven that it is there.
func (d *Directory) liveTokens() (map[tokenOf]owner, error) {
	owners := map[tokenOf]owner{}
	for _, table := range []*ebpf.Map{d.objects.Sessions, d.objects.NewSessions} {
		err := abi.EachBatched(table, func(key bpf.AgentSessionKey, row bpf.AgentSession) {
			if row.Token != 0 && session.StateOf(key.Protocol, row.Events) == session.StateEstablished {
				owners[tokenOf{row.Vip, key.Dip, row.Token}] = owner{key, row.VipPort}
			}
		})
		if err != nil {
			return nil, fmt.Errorf("read tokens of sessions: %w", err)
		}
	}
	return owners, nil
}

// isLive says whether a row is of a live connection of the workload behind its tunnel.
func (d *Directory) isLive(key bpf.AgentMultipathName, row bpf.AgentMultipathHolder, owners map[tokenOf]owner) bool {
	backend, found := d.endpoints[fromName(key).Endpoint].backends[bpf.FromAddress(row.Tunnel)]
	if !found {
		return false // the workload has moved
	}
	_, live := owners[tokenOf{key.Vip, bpf.ToAddress(backend.Addr()), key.Token}]
	return live
}

// sweepHolders removes rows that count no more. Those that live are prolonged; if lives is not nil, others are a dead connection's,
// and end sooner: its tokens may be in the way of new ones. Not those that were made after the sessions were read, at the clock's time.
func sweepHolders(table *ebpf.Map, clock time.Duration, lives func(bpf.AgentMultipathName, bpf.AgentMultipathHolder) bool, count func(vip bpf.AgentAddress)) (int, error) {
	var gone []bpf.AgentMultipathName
	changed := map[bpf.AgentMultipathName]bpf.AgentMultipathHolder{}
	left := 0
	err := abi.EachBatched(table, func(key bpf.AgentMultipathName, row bpf.AgentMultipathHolder) {
		switch until := time.Duration(row.Until); {
		case lives != nil && lives(key, row):
			if until < clock+multipath.NameLife/2 { // not each time: a host may have many
				row.Until = uint64(clock + multipath.NameLife)
				changed[key] = row
			}
		case until <= clock:
			gone = append(gone, key)
			return
		case lives != nil && until > clock+deadLife && until <= clock+multipath.NameLife-coarse:
			row.Until = uint64(clock + deadLife)
			changed[key] = row
		}
		left++
		count(key.Vip)
	})
	if err != nil {
		return 0, fmt.Errorf("read tokens: %w", err)
	}
	for _, key := range gone {
		if err := remove(table, key); err != nil {
			return 0, fmt.Errorf("remove token: %w", err)
		}
	}
	for key, row := range changed {
		if err := table.Update(key, row, ebpf.UpdateExist); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return 0, fmt.Errorf("change token: %w", err)
		}
	}
	return left, nil
}

// sweepJoined removes subflows that were silent for so long; 0: for as long as their endpoint remembers flows.
func (d *Directory) sweepJoined(table *ebpf.Map, clock, life time.Duration, count func(vip bpf.AgentAddress)) (int, error) {
	var gone []bpf.AgentMultipathFlow
	left := 0
	err := abi.EachBatched(table, func(key bpf.AgentMultipathFlow, row bpf.AgentMultipathJoined) {
		limit := d.idleOf(key)
		if row.Closing != 0 {
			limit = min(limit, closingLife)
		}
		if life != 0 {
			limit = min(limit, life)
		}
		if clock-time.Duration(row.LastSeen) > limit {
			gone = append(gone, key)
			return
		}
		left++
		count(key.Vip)
	})
	if err != nil {
		return 0, fmt.Errorf("read subflows: %w", err)
	}
	for _, key := range gone {
		if err := remove(table, key); err != nil {
			return 0, fmt.Errorf("remove subflow: %w", err)
		}
	}
	return left, nil
}

// idleOf is how long the endpoint of a subflow remembers silent flows; 0: it is gone.
func (d *Directory) idleOf(key bpf.AgentMultipathFlow) time.Duration {
	endpoint := model.EndpointKey{VIP: bpf.FromAddress(key.Vip), Protocol: model.TCP, Port: abi.Port(key.VipPort)}
	e, found := d.endpoints[endpoint]
	if !found {
		endpoint.Port = model.AllPorts
		e, found = d.endpoints[endpoint]
	}
	if found && e.idle == 0 {
		return model.DefaultIdleTCP
	}
	return e.idle
}

// OwnTokens are those of this host's workloads whose connections live.
func (d *Directory) OwnTokens() ([]Own, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.endpoints) == 0 {
		return nil, nil
	}
	clock, err := now()
	if err != nil {
		return nil, err
	}
	var all []Own
	err = abi.EachBatched(d.objects.MptcpTokens, func(key bpf.AgentMultipathName, row bpf.AgentMultipathHolder) {
		name := fromName(key)
		e, found := d.endpoints[name.Endpoint]
		if found && time.Duration(row.Until) > clock+deadLife {
			all = append(all, Own{Name: name, Tunnel: bpf.FromAddress(row.Tunnel), Client: clientOf(row), Homes: e.homes[name.Token.Cell()]})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	return all, nil
}

// StaleTokens are those that were not refreshed in time, though they count: their workload may have moved to another host.
func (d *Directory) StaleTokens() ([]Stale, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.endpoints) == 0 {
		return nil, nil
	}
	clock, err := now()
	if err != nil {
		return nil, err
	}
	var all []Stale
	err = abi.EachBatched(d.objects.MptcpNames, func(key bpf.AgentMultipathName, row bpf.AgentMultipathHolder) {
		left := time.Duration(row.Until) - clock
		if e, found := d.endpoints[fromName(key).Endpoint]; found && e.own.IsValid() && left > 0 && left < multipath.NameLife-multipath.AskAfter {
			all = append(all, Stale{Name: fromName(key), Tunnel: bpf.FromAddress(row.Tunnel), From: e.own, Client: clientOf(row)})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read tokens of others: %w", err)
	}
	return all, nil
}

func clientOf(row bpf.AgentMultipathHolder) netip.AddrPort {
	return netip.AddrPortFrom(bpf.FromAddress(row.Client), abi.Port(row.ClientPort))
}

// HolderOf is the tunnel of the host that has a token, as far as this one knows; zero: it does not.
func (d *Directory) HolderOf(name multipath.Name) (netip.Addr, error) {
	clock, err := now()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, table := range []*ebpf.Map{d.objects.MptcpTokens, d.objects.MptcpNames} {
		var row bpf.AgentMultipathHolder
		switch err := table.Lookup(toName(name), &row); {
		case err == nil && time.Duration(row.Until) > clock:
			return bpf.FromAddress(row.Tunnel), nil
		case err != nil && !errors.Is(err, ebpf.ErrKeyNotExist):
			return netip.Addr{}, fmt.Errorf("read token: %w", err)
		}
	}
	return netip.Addr{}, nil
}

// NoteName notes a token of this host's for which the host itself is a home, if the VIP has room for one more.
func (d *Directory) NoteName(own Own) error {
	clock, err := now()
	if err != nil {
		return err
	}
	row := bpf.AgentMultipathHolder{
		Tunnel: bpf.ToAddress(own.Tunnel), Until: uint64(clock + multipath.NameLife),
		Client: bpf.ToAddress(own.Client.Addr()), ClientPort: abi.Port(own.Client.Port()),
	}
	key := toName(own.Name)
	d.mu.Lock()
	defer d.mu.Unlock()
	var had bpf.AgentMultipathHolder
	switch err := d.objects.MptcpNames.Lookup(key, &had); {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		if room, err := d.takeRoom(key.Vip, bpf.AgentMultipathTableMULTIPATH_NAMES); err != nil || !room {
			return err
		}
	case err != nil:
		return fmt.Errorf("read token: %w", err)
	case had.Tunnel != row.Tunnel && time.Duration(had.Until) > clock:
		return nil // another host's, which came first
	}
	if err := d.objects.MptcpNames.Put(key, row); err != nil {
		return fmt.Errorf("note token: %w", err)
	}
	return nil
}

// takeRoom takes the room of a row of a VIP, if there is any. The quota shrinks by it, as the counts are the programs' to write.
func (d *Directory) takeRoom(vip bpf.AgentAddress, table bpf.AgentMultipathTable) (bool, error) {
	var usage bpf.AgentMultipathUsage
	var quota bpf.AgentMultipathQuota
	err := errors.Join(d.objects.MptcpUsages.Lookup(vip, &usage), d.objects.MptcpQuotas.Lookup(vip, &quota))
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist): // the VIP has just lost its last endpoint with multipath
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read the quota of tokens of %s: %w", bpf.FromAddress(vip), err)
	case usage.Made[table] >= quota.Limit[table]:
		d.refused++
		return false, nil
	}
	quota.Limit[table]--
	if err := d.objects.MptcpQuotas.Put(vip, quota); err != nil {
		return false, fmt.Errorf("set the quota of tokens of %s: %w", bpf.FromAddress(vip), err)
	}
	return true, nil
}

// HasTunnel says whether the host decapsulates for the tunnel.
func (d *Directory) HasTunnel(tunnel netip.Addr) bool {
	var row uint8
	return d.objects.Tunnels.Lookup(bpf.ToAddress(tunnel), &row) == nil
}

// The token is as on the wire.
func toName(n multipath.Name) bpf.AgentMultipathName {
	var token [4]byte
	binary.BigEndian.PutUint32(token[:], uint32(n.Token))
	return bpf.AgentMultipathName{
		Vip: bpf.ToAddress(n.Endpoint.VIP), Port: abi.Port(n.Endpoint.Port), Protocol: uint8(n.Endpoint.Protocol),
		Token: binary.NativeEndian.Uint32(token[:]),
	}
}

func fromName(key bpf.AgentMultipathName) multipath.Name {
	var token [4]byte
	binary.NativeEndian.PutUint32(token[:], key.Token)
	return multipath.Name{
		Endpoint: model.EndpointKey{VIP: bpf.FromAddress(key.Vip), Protocol: model.Protocol(key.Protocol), Port: abi.Port(key.Port)},
		Token:    multipath.Token(binary.BigEndian.Uint32(token[:])),
	}
}
