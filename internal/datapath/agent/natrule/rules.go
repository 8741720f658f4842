package natrule

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/datapath/agent/tenant"
	"github.com/weirlb/weir/internal/model"
)

// Config is what Rules need of the data plane.
type Config struct {
	Objects  *bpf.AgentObjects
	Max      int // rules
	Numbers  *tenant.Numbers
	Sessions *session.Tracker
	SNAT     *snat.Translator
	// Multipath follows the endpoints whose subflows find their connection.
	Multipath func(rules map[model.HostBackendKey]model.HostBackend) error
	Lock      *sync.Mutex
}

// Rules are the backends of the host, as in the tables nat_rules, chain_peers, tunnels and muxes.
type Rules struct {
	c      Config
	live   map[model.HostBackendKey]model.HostBackend // guarded by the lock; what rows come from
	beyond map[model.EndpointKey]bool                 // endpoints that had no room for their peers
}

// New has no rules yet.
func New(c Config) *Rules {
	return &Rules{c: c, live: make(map[model.HostBackendKey]model.HostBackend)}
}

// All are the backends by their keys. The caller holds the lock.
func (r *Rules) All() map[model.HostBackendKey]model.HostBackend { return r.live }

// Apply changes some backends: those of upserts are added or replaced, those of removed go. It
// changes nothing if they do not fit.
func (r *Rules) Apply(upserts []model.HostBackend, removed []model.HostBackendKey) error {
	r.c.Lock.Lock()
	defer r.c.Lock.Unlock()
	rules := maps.Clone(r.live)
	for _, key := range removed {
		delete(rules, key)
	}
	for _, b := range upserts {
		rules[b.Key()] = b
	}
	return r.set(rules)
}

// Replace makes all the only backends of the host.
func (r *Rules) Replace(all []model.HostBackend) error {
	rules := make(map[model.HostBackendKey]model.HostBackend, len(all))
	for _, b := range all {
		rules[b.Key()] = b
	}
	r.c.Lock.Lock()
	defer r.c.Lock.Unlock()
	return r.set(rules)
}

func (r *Rules) set(rules map[model.HostBackendKey]model.HostBackend) error {
	if room := r.c.Max; len(rules) > room {
		return fmt.Errorf("set rules: needs %d, has room for %d", len(rules), room)
	}
	if err := r.c.SNAT.FitTunnels(rules); err != nil {
		return fmt.Errorf("set rules: %w", err)
	}
	rows := make(map[bpf.AgentNatRuleKey]bpf.AgentNatRule, len(rules))
	for key, b := range rules {
		if vip := key.Endpoint.VIP; vip.Is4() != b.Backend.Addr().Is4() {
			return fmt.Errorf("set rule of %s: backend %s is of another family", key.Endpoint, b.Backend)
		}
		rows[toRuleKey(key)] = toRule(b)
	}
	if err := errors.Join(r.c.Sessions.CountVIPs(rules), r.c.Numbers.Set(tenant.OwnersOf(rules, r.c.SNAT.Configs())), r.setChainPeers(rules), r.c.Multipath(rules)); err != nil {
		return err
	}
	if err := abi.WriteTable(r.c.Objects.NatRules, rows); err != nil {
		return fmt.Errorf("set rules: %w", err)
	}
	if err := r.setTunnels(rules); err != nil {
		return err
	}
	r.live = rules
	return r.c.SNAT.FollowTenants()
}

// SetTunnels has the host decapsulate for workloads with source NAT as they are now. The caller holds the lock.
func (r *Rules) SetTunnels() error { return r.setTunnels(r.live) }

// setTunnels writes the tunnel addresses that the host decapsulates for: those of rules, and of workloads with source
// NAT.
func (r *Rules) setTunnels(rules map[model.HostBackendKey]model.HostBackend) error {
	tunnels := r.c.SNAT.Tunnels(rules)
	ipv4 := true
	for t := range tunnels {
		ipv4 = ipv4 && bpf.FromAddress(t).Is4()
	}
	if !ipv4 { // before one of IPv6 is there
		if err := r.setIPv4Tunnels(0); err != nil {
			return err
		}
	}
	if err := abi.WriteTable(r.c.Objects.Tunnels, tunnels); err != nil {
		return fmt.Errorf("set tunnels: %w", err)
	}
	if ipv4 {
		return r.setIPv4Tunnels(1)
	}
	return nil
}

// setIPv4Tunnels notes whether tunnels are IPv4 alone, 1: clients' segments may be larger then.
func (r *Rules) setIPv4Tunnels(alone uint32) error {
	var s bpf.AgentAgentSettings
	if err := r.c.Objects.Settings.Get(&s); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	if s.Ipv4Tunnels == alone {
		return nil
	}
	return bpf.ChangeSettings(r.c.Objects, func(s *bpf.AgentAgentSettings) { s.Ipv4Tunnels = alone })
}

// SetMuxes makes the addresses of prefixes the only outer sources whose packets are decapsulated,
// beside those of a rule's peers.
func (r *Rules) SetMuxes(prefixes []netip.Prefix) error {
	rows := make(map[bpf.AgentPrefix]uint8, len(prefixes))
	for _, p := range prefixes {
		rows[bpf.ToPrefix(p.Masked())] = 1
	}
	r.c.Lock.Lock()
	defer r.c.Lock.Unlock()
	if err := abi.WriteTable(r.c.Objects.Muxes, rows); err != nil {
		return fmt.Errorf("set muxes: %w", err)
	}
	return r.setRelays(prefixes)
}

// setRelays has fragments that switches bring relayed to the first of these muxes: an address for itself is one's own. Their
// order is the pool's, which knows as many members.
func (r *Rules) setRelays(prefixes []netip.Prefix) error {
	rows := map[uint32]bpf.AgentSteerRelays{}
	for _, p := range prefixes {
		family := uint32(bpf.AgentSteerRelaySTEER_RELAYS_V6)
		if p.Addr().Is4() {
			family = uint32(bpf.AgentSteerRelaySTEER_RELAYS_V4)
		}
		row := rows[family]
		if !p.IsSingleIP() || int(row.Count) == len(row.Addresses) {
			continue
		}
		row.Addresses[row.Count] = bpf.ToAddress(p.Addr())
		row.Count++
		rows[family] = row
	}
	for family := range uint32(bpf.AgentSteerRelaySTEER_RELAY_FAMILIES) {
		if err := r.c.Objects.SteerRelays.Put(family, rows[family]); err != nil {
			return fmt.Errorf("set muxes to relay to: %w", err)
		}
	}
	return nil
}

// setChainPeers makes the peers of the rules the only ones that may hand packets on to them.
func (r *Rules) setChainPeers(rules map[model.HostBackendKey]model.HostBackend) error {
	rows, beyond := make(map[bpf.AgentChainPeer]uint8), beyondShare(rules, int(r.c.Objects.ChainPeers.MaxEntries()), r.beyond)
	r.beyond = beyond
	for key, backend := range rules {
		if beyond[key.Endpoint] {
			continue
		}
		for _, peer := range backend.ChainPeers {
			rows[bpf.AgentChainPeer{Rule: toRuleKey(key), Source: bpf.ToAddress(peer)}] = 1
		}
	}
	if err := abi.WriteTable(r.c.Objects.ChainPeers, rows); err != nil {
		return fmt.Errorf("set peers: %w", err)
	}
	return nil
}

// Read restores what an earlier process has set.
func (r *Rules) Read() error {
	rows, err := abi.ReadTable[bpf.AgentNatRuleKey, bpf.AgentNatRule](r.c.Objects.NatRules)
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	r.live = FromRows(rows)
	return nil
}

// FromRows is what rows say of backends; the rest only the manager knows.
func FromRows(rows map[bpf.AgentNatRuleKey]bpf.AgentNatRule) map[model.HostBackendKey]model.HostBackend {
	rules := make(map[model.HostBackendKey]model.HostBackend, len(rows))
	for key, row := range rows {
		b := fromRule(fromRuleKey(key), row)
		rules[b.Key()] = b
	}
	return rules
}

func toRule(b model.HostBackend) bpf.AgentNatRule {
	row := bpf.AgentNatRule{
		Dip: bpf.ToAddress(b.Backend.Addr()), Port: abi.Port(b.Backend.Port()),
		Slot: uint16(b.Slot), IdleTimeout: toMilliseconds(b.IdleTimeout),
	}
	if b.Cookies && b.Slot != 0 {
		row.Flags |= bpf.AgentNatRuleFlagNAT_RULE_COOKIES
	}
	if len(b.Homes) > 0 {
		row.Flags |= bpf.AgentNatRuleFlagNAT_RULE_MULTIPATH
	}
	if b.Fastpath {
		row.Flags |= bpf.AgentNatRuleFlagNAT_RULE_FASTPATH
	}
	switch b.SYNCookies {
	case model.SYNCookiesAuto:
		row.Flags |= bpf.AgentNatRuleFlagNAT_RULE_SYN_COOKIES
	case model.SYNCookiesAlways:
		row.Flags |= bpf.AgentNatRuleFlagNAT_RULE_SYN_COOKIES | bpf.AgentNatRuleFlagNAT_RULE_SYN_ALWAYS
	}
	return row
}

// fromRule is what a row says of its backend; the rest only the manager knows.
func fromRule(key model.HostBackendKey, row bpf.AgentNatRule) model.HostBackend {
	return model.HostBackend{
		Endpoint: key.Endpoint, Tunnel: key.Tunnel, Backend: bpf.FromAddrPort(row.Dip, row.Port),
		Slot: model.Slot(row.Slot), Cookies: row.Flags&bpf.AgentNatRuleFlagNAT_RULE_COOKIES != 0,
		IdleTimeout: time.Duration(row.IdleTimeout) * time.Millisecond,
		Fastpath:    row.Flags&bpf.AgentNatRuleFlagNAT_RULE_FASTPATH != 0,
		SYNCookies:  fromSYNFlags(row.Flags),
	}
}

func fromSYNFlags(flags bpf.AgentNatRuleFlag) model.SYNCookies {
	switch {
	case flags&bpf.AgentNatRuleFlagNAT_RULE_SYN_ALWAYS != 0:
		return model.SYNCookiesAlways
	case flags&bpf.AgentNatRuleFlagNAT_RULE_SYN_COOKIES != 0:
		return model.SYNCookiesAuto
	}
	return model.SYNCookiesNever
}

// toMilliseconds rounds down, but to 0 only what is 0, and bounds what is more than 49 days.
func toMilliseconds(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	return uint32(min(max(d.Milliseconds(), 1), math.MaxUint32))
}

func toRuleKey(key model.HostBackendKey) bpf.AgentNatRuleKey {
	return bpf.AgentNatRuleKey{
		Vip:      bpf.ToAddress(key.Endpoint.VIP),
		Tunnel:   bpf.ToAddress(key.Tunnel),
		Port:     abi.Port(key.Endpoint.Port),
		Protocol: uint8(key.Endpoint.Protocol),
	}
}

func fromRuleKey(key bpf.AgentNatRuleKey) model.HostBackendKey {
	return model.HostBackendKey{
		Endpoint: model.EndpointKey{
			VIP:      bpf.FromAddress(key.Vip),
			Protocol: model.Protocol(key.Protocol),
			Port:     abi.Port(key.Port),
		},
		Tunnel: bpf.FromAddress(key.Tunnel),
	}
}
