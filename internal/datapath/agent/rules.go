package agent

import (
	"fmt"
	"maps"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/abi"
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
		rules[b.Key()] = b.Backend
	}
	return d.setRules(rules)
}

// Replace makes all the only backends of the host.
func (d *Datapath) Replace(all []model.HostBackend) error {
	rules := make(map[model.HostBackendKey]netip.AddrPort, len(all))
	for _, b := range all {
		rules[b.Key()] = b.Backend
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.setRules(rules)
}

func (d *Datapath) setRules(rules map[model.HostBackendKey]netip.AddrPort) error {
	if room := d.config.MaxRules; len(rules) > room {
		return fmt.Errorf("set rules: needs %d, has room for %d", len(rules), room)
	}
	rows := make(map[agentNatRuleKey]agentNatRule, len(rules))
	tunnels := make(map[agentAddress]uint8)
	for key, backend := range rules {
		if vip := key.Endpoint.VIP; vip.Is4() != backend.Addr().Is4() {
			return fmt.Errorf("set rule of %s: backend %s is of another family", key.Endpoint, backend)
		}
		rows[toRuleKey(key)] = agentNatRule{Dip: toAddress(backend.Addr()), Port: abi.Port(backend.Port())}
		tunnels[toAddress(key.Tunnel)] = 1
	}
	if err := writeTable(d.objects.NatRules, rows); err != nil {
		return fmt.Errorf("set rules: %w", err)
	}
	if err := writeTable(d.objects.Tunnels, tunnels); err != nil {
		return fmt.Errorf("set tunnels: %w", err)
	}
	d.rules = rules
	return nil
}

// readRules restores what an earlier process has set.
func (d *Datapath) readRules() error {
	rows, err := readTable[agentNatRuleKey, agentNatRule](d.objects.NatRules)
	if err != nil {
		return fmt.Errorf("read rules: %w", err)
	}
	d.rules = fromRules(rows)
	return nil
}

func fromRules(rows map[agentNatRuleKey]agentNatRule) map[model.HostBackendKey]netip.AddrPort {
	rules := make(map[model.HostBackendKey]netip.AddrPort, len(rows))
	for key, rule := range rows {
		rules[fromRuleKey(key)] = fromAddrPort(rule.Dip, rule.Port)
	}
	return rules
}

func toRuleKey(key model.HostBackendKey) agentNatRuleKey {
	return agentNatRuleKey{
		Vip:      toAddress(key.Endpoint.VIP),
		Tunnel:   toAddress(key.Tunnel),
		Port:     abi.Port(key.Endpoint.Port),
		Protocol: uint8(key.Endpoint.Protocol),
	}
}

func fromRuleKey(key agentNatRuleKey) model.HostBackendKey {
	return model.HostBackendKey{
		Endpoint: model.EndpointKey{
			VIP:      fromAddress(key.Vip),
			Protocol: model.Protocol(key.Protocol),
			Port:     abi.Port(key.Port),
		},
		Tunnel: fromAddress(key.Tunnel),
	}
}
