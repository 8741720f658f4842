package overlay

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/netlink"
)

// What VXLAN adds to a packet: Ethernet, IP, UDP, VXLAN.
const overhead4, overhead6 = 50, 70

// program writes the tables. Where packets go is written before what brings packets: hosts and rules before attachments,
// and these before ports.
func (c *Controller) program(host Host) error {
	d, now, own := c.datapath, c.inForce(), underlayOf(c.wanted.own, c.wanted.addresses)
	rules, interfaces, err := c.rulesOf(host)
	if err != nil {
		return err
	}
	attachments, fresh, err := c.attachmentsOf(now)
	if err != nil {
		return err
	}
	for _, number := range fresh {
		if err := d.ForgetTraffic(number); err != nil {
			return err
		}
	}
	if err := c.backends.give(d, attachments, rules); err != nil {
		return err
	}
	err = errors.Join(d.SetKeys(c.wanted.keys), d.SetSYNSecrets(c.secrets), d.SetHosts(now.hostsOf(host.Muxes)), d.SetUnderlay(own), shareTable(d, c.tenants.of), d.SetRules(rules))
	if err != nil {
		return err
	}
	if err := errors.Join(d.SetInterfaces(interfaces), d.SetAttachments(attachments)); err != nil {
		return err
	}
	ports := c.portsOf(now, own)
	if err := d.SetPorts(ports); err != nil {
		return err
	}
	c.state.ports = len(ports)
	return nil
}

// underlayOf is where VXLAN of clients comes from and goes to.
func underlayOf(own, muxes []netip.Addr) (u overlay.Underlay) {
	u.Own4, u.Own6 = vnet.Tunnels(own)
	u.Mux4, u.Mux6 = vnet.Tunnels(muxes)
	return u
}

// attachmentsOf are all attachments by number, and the numbers that are new.
func (c *Controller) attachmentsOf(now wanted) (all map[uint32]overlay.Attachment, fresh []uint32, err error) {
	keys := map[vnet.AttachmentKey]bool{}
	for key := range now.attachments {
		keys[key] = true
	}
	added, err := c.attachments.set(keys)
	if err != nil {
		return nil, nil, err
	}
	if err := c.numberTenants(now); err != nil {
		return nil, nil, err
	}
	all = make(map[uint32]overlay.Attachment, len(keys))
	var warnings []string
	for key, a := range now.attachments {
		network, known := now.networks[key.VNI]
		if !known { // of others all is well
			warnings = append(warnings, fmt.Sprintf("%s is not attached to network %d: nothing is told of that", key.VIP, key.VNI))
			continue
		}
		_, stays := c.wanted.attachments[key]
		all[c.attachments.of[key]] = overlay.Attachment{
			VNI: key.VNI, VIP: key.VIP, Service: a.Service, Tenant: c.tenants.of[network.Tenant], GatewayMAC: network.GatewayMAC, Leaving: !stays,
		}
	}
	slices.Sort(warnings)
	c.warnings["attachments"] = warnings
	for _, key := range added {
		fresh = append(fresh, c.attachments.of[key])
	}
	return all, fresh, nil
}

// numberTenants gives numbers to the networks' tenants: those that they had before a restart.
func (c *Controller) numberTenants(now wanted) error {
	names, taken := map[string]bool{}, map[uint32]bool{}
	for _, number := range c.tenants.of {
		taken[number] = true
	}
	for _, vni := range slices.Sorted(maps.Keys(now.networks)) {
		name := now.networks[vni].Tenant
		names[name] = true
		if number := c.lentTo[vni]; number != 0 && c.tenants.of[name] == 0 && !taken[number] {
			c.tenants.adopt(name, number)
			taken[number] = true
		}
	}
	clear(c.lentTo)
	_, err := c.tenants.set(names)
	clear(c.tenants.quarantined) // counts follow the attachments, whose tenant may change
	return err
}

// shareTable divides the session table: half of it belongs to the tenants in equal parts, the rest is lent. A quarter of
// what one may have may be half-open.
func shareTable(d *overlay.Datapath, numbers map[string]uint32) error {
	rows, tenants := uint32(d.Rows()), uint32(max(1, len(numbers)))
	lent, own := rows/2, rows/2/tenants
	most := own + lent
	if tenants > 1 {
		most = own + lent/2
	}
	err := d.SetTenant(0, lent, 0, 0)
	for _, number := range numbers {
		err = errors.Join(err, d.SetTenant(number, own, most, max(1, most/4)))
	}
	return err
}

// rulesOf are the backends of attached VIPs by number, and the interfaces of their workloads.
func (c *Controller) rulesOf(host Host) (rules map[uint32]overlay.Rule, interfaces []int, err error) {
	services, backends, keys := c.wanted.services(), map[ruleKey]model.HostBackend{}, map[ruleKey]bool{}
	for key, b := range host.Backends {
		if !services[key.Endpoint.VIP] {
			continue
		}
		of := ruleKey{netip.AddrPortFrom(key.Endpoint.VIP, key.Endpoint.Port), key.Tunnel, key.Endpoint.Protocol == model.UDP}
		backends[of], keys[of] = b, true
	}
	if _, err := c.rules.set(keys); err != nil {
		return nil, nil, err
	}
	rules = make(map[uint32]overlay.Rule, len(keys))
	c.served = make(map[uint32]model.HostBackend, len(keys))
	for key, b := range backends {
		ifindex, there := host.Interfaces[b.Backend.Addr()]
		c.served[c.rules.of[key]] = b
		rules[c.rules.of[key]] = overlay.Rule{
			Service: key.service, IsUDP: key.udp, Tunnel: key.tunnel, Backend: b.Backend, Ifindex: uint32(ifindex), IsDown: !there, IdleTimeout: b.IdleTimeout,
			SYNCookies: b.SYNCookies != model.SYNCookiesNever,
		}
		if ifindex != netlink.Native {
			interfaces = append(interfaces, ifindex)
		}
	}
	slices.Sort(interfaces)
	return rules, slices.Compact(interfaces), nil
}

// hostsOf are all that VXLAN may come from: hosts, addresses of their servers, and muxes. Clients and servers of this host
// meet by its own addresses.
func (w *wanted) hostsOf(muxes []netip.Prefix) (all []overlay.Host) {
	for _, h := range w.hosts {
		of := overlay.Host{Number: h.Number, V4: h.V4, V6: h.V6}
		switch {
		case h.WithoutAgent:
			of.Roles |= overlay.Bare
		case h.Client:
			of.Roles |= overlay.Client
		}
		if h.Number == w.number {
			of.Roles |= overlay.Client | overlay.Server
		}
		all = append(all, of)
		for _, tunnel := range h.Tunnels {
			all = append(all, of4or6(overlay.Server, tunnel))
		}
	}
	for _, mux := range muxes {
		if mux.IsSingleIP() { // from prefixes they send no VXLAN
			all = append(all, of4or6(overlay.Mux, mux.Addr()))
		}
	}
	return all
}

func of4or6(roles overlay.Role, a netip.Addr) overlay.Host {
	if a.Is4() {
		return overlay.Host{Roles: roles, V4: a}
	}
	return overlay.Host{Roles: roles, V6: a}
}

// portsOf are the interfaces of networks' workloads that are there. What is missing, or too small, is a warning: one
// workload must not keep others from their VIPs.
func (c *Controller) portsOf(now wanted, own overlay.Underlay) (ports []overlay.Port) {
	const flowsOfOne = 2 // of the table: a port has half of it at most
	var warnings []string
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	room := c.uplink.MTU - overhead6
	if own.Own4.IsValid() && own.Mux4.IsValid() {
		room = c.uplink.MTU - overhead4
	}
	for _, vni := range slices.Sorted(maps.Keys(now.networks)) {
		n := now.networks[vni]
		for _, p := range n.Ports {
			p.Interface = cmp.Or(c.interfaces[WorkloadName{n.Name, p.Workload}], p.Interface)
			found, err := netlink.FindInterface(p.Interface)
			if err != nil {
				warn("workload %s of network %s can't reach VIPs: %v", p.Workload, n.Name, err)
				continue
			}
			if found.Index == c.uplink.Index {
				warn("workload %s of network %s can't reach VIPs: %s is the uplink", p.Workload, n.Name, p.Interface)
				continue
			}
			if found.MTU > room {
				warn("workload %s of network %s: of the MTU of %s, %d, there is room for %d in VXLAN by %s, whose MTU is %d: lower the one, or raise the other",
					p.Workload, n.Name, p.Interface, found.MTU, room, c.uplink.Name, c.uplink.MTU)
			}
			port := overlay.Port{
				Ifindex: found.Index, VNI: vni, MAC: p.MAC, Addresses: p.Addresses, Flows: uint32(max(1, c.config.Flows/flowsOfOne)),
			}
			if slices.ContainsFunc(ports, port.Collides) {
				warn("workload %s of network %s can't reach VIPs: its interface, %s, or its address is another workload's too", p.Workload, n.Name, p.Interface)
				continue
			}
			ports = append(ports, port)
		}
	}
	reaches := own.Own4.IsValid() && own.Mux4.IsValid() || own.Own6.IsValid() && own.Mux6.IsValid()
	if len(ports) > 0 && !reaches {
		warn("workloads of networks can't reach VIPs: muxes take VXLAN at %v, and this host has no address of that family", now.addresses)
	}
	c.warnings["ports"] = warnings
	return ports
}
