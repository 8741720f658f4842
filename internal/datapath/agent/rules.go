package agent

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/tenant"
	"github.com/weirlb/weir/internal/model"
)

// Apply changes some backends: those of upserts are added or replaced, those of removed go. It
// changes nothing if they do not fit.
func (d *Datapath) Apply(upserts []model.HostBackend, removed []model.HostBackendKey) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	rules := maps.Clone(d.rules)
	for _, key := range removed {
		delete(rules, key)
	}
	for _, b := range upserts {
		rules[b.Key()] = b
	}
	return d.setRules(rules)
}

// Replace makes all the only backends of the host.
func (d *Datapath) Replace(all []model.HostBackend) error {
	rules := make(map[model.HostBackendKey]model.HostBackend, len(all))
	for _, b := range all {
		rules[b.Key()] = b
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.setRules(rules)
}

func (d *Datapath) setRules(rules map[model.HostBackendKey]model.HostBackend) error {
	if room := d.config.MaxRules; len(rules) > room {
		return fmt.Errorf("set rules: needs %d, has room for %d", len(rules), room)
	}
	rows := make(map[bpf.AgentNatRuleKey]bpf.AgentNatRule, len(rules))
	for key, b := range rules {
		if vip := key.Endpoint.VIP; vip.Is4() != b.Backend.Addr().Is4() {
			return fmt.Errorf("set rule of %s: backend %s is of another family", key.Endpoint, b.Backend)
		}
		rows[toRuleKey(key)] = toRule(b)
	}
	if err := errors.Join(d.CountVIPs(rules), d.numbers.Set(tenant.OwnersOf(rules, d.Configs())), d.setChainPeers(rules)); err != nil {
		return err
	}
	if err := bpf.WriteTable(d.objects.NatRules, rows); err != nil {
		return fmt.Errorf("set rules: %w", err)
	}
	if err := d.setTunnels(rules); err != nil {
		return err
	}
	d.rules = rules
	return d.FollowTenants()
}

// setTunnels writes the tunnel addresses that the host decapsulates for: those of rules, and of workloads with source
// NAT.
func (d *Datapath) setTunnels(rules map[model.HostBackendKey]model.HostBackend) error {
	tunnels := d.Tunnels()
	for key := range rules {
		tunnels[bpf.ToAddress(key.Tunnel)] = 1
	}
	if err := bpf.WriteTable(d.objects.Tunnels, tunnels); err != nil {
		return fmt.Errorf("set tunnels: %w", err)
	}
	return nil
}

// readRules restores what an earlier process has set.
func (d *Datapath) readRules() error {
	rows, err := bpf.ReadTable[bpf.AgentNatRuleKey, bpf.AgentNatRule](d.objects.NatRules)
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	d.rules = fromRules(rows)
	return nil
}

func fromRules(rows map[bpf.AgentNatRuleKey]bpf.AgentNatRule) map[model.HostBackendKey]model.HostBackend {
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
