package forwarding

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/mux/nat"
	"github.com/weirlb/weir/internal/datapath/overlay/quota"
	"github.com/weirlb/weir/internal/datapath/overlay/reset"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/telemetry"
)

// NAT is the data plane of full NAT. Each setter of a table makes it exactly what it is given.
type NAT interface {
	SetNATPrefixes(v4, v6 netip.Prefix) error
	SetNATBackends(map[nat.Slot]nat.Backend) error
	SetNATHosts([]nat.Host) error
	SetNATTenant(number, own, most, halfOpen uint32) error
	NATUsage(number uint32) (quota.Usage, error)
	MaxNATSessions() int
	SweepNAT(now uint32, send func(reset.Pair) error) (nat.Swept, error)
}

// fullNAT keeps the tables of full NAT. A mux without NAT prefixes has none: what asks for it is full NAT by the servers'
// hosts there.
type fullNAT struct {
	datapath NAT
	prefixes [2]netip.Prefix // of IPv4 and IPv6; not valid: none

	backends map[nat.Slot]nat.Backend      // in the tables
	tenants  map[string]uint32             // of networks, to their numbers
	adopted  map[vnet.AttachmentKey]uint32 // numbers of tenants that the manager has not named yet
	// sessions are the attachments that have full NAT, or had it: sessions of these may live.
	sessions map[vnet.AttachmentKey]bool
}

// maxNATTenants is how many tenants of networks have numbers.
const maxNATTenants = 4096

func newFullNAT(datapath NAT, prefixes []netip.Prefix) (*fullNAT, error) {
	f := &fullNAT{
		datapath: datapath, backends: map[nat.Slot]nat.Backend{}, tenants: map[string]uint32{}, adopted: map[vnet.AttachmentKey]uint32{},
		sessions: map[vnet.AttachmentKey]bool{},
	}
	for _, p := range prefixes {
		f.prefixes[familyIndex(p.Addr())] = p
	}
	return f, datapath.SetNATPrefixes(f.prefixes[0], f.prefixes[1])
}

func familyIndex(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// is says whether this mux is the client of an attachment's backends.
func (f *fullNAT) is(a vnet.Attachment) bool {
	return a.NAT && f.prefixes[familyIndex(a.VIP)].IsValid()
}

// isOn says whether there is any NAT prefix.
func (f *fullNAT) isOn() bool { return f.prefixes[0].IsValid() || f.prefixes[1].IsValid() }

// adopt notes an attachment that an earlier process has set.
func (f *fullNAT) adopt(key vnet.AttachmentKey, tenant uint32) {
	f.adopted[key], f.sessions[key] = tenant, true
}

// tenantOf is the number of an attachment's tenant; 0: it has none.
func (f *fullNAT) tenantOf(a vnet.Attachment) uint32 {
	if a.Tenant == "" { // adopted, and not named by the manager yet
		return f.adopted[a.AttachmentKey]
	}
	return f.tenants[a.Tenant]
}

// natBackends are the backends of the endpoints whose attachments have full NAT.
func (s networkSet) natBackends() map[nat.Slot]nat.Backend {
	backends := map[nat.Slot]nat.Backend{}
	for key, e := range s.endpoints {
		for _, b := range e.Backends {
			backends[nat.Slot{Service: key.VIP, Port: key.Port, Slot: b.Slot}] = nat.Backend{Address: b.Backend, IdleTimeout: e.IdleTimeout}
		}
	}
	return backends
}

// prepare has backends that an update brings beside those that there are, before its endpoints are used.
func (f *fullNAT) prepare(next networkSet) error {
	if !f.isOn() {
		return nil
	}
	both := maps.Clone(f.backends)
	maps.Copy(both, next.natBackends())
	return f.setBackends(both)
}

func (f *fullNAT) setBackends(backends map[nat.Slot]nat.Backend) error {
	if maps.Equal(f.backends, backends) {
		return nil
	}
	if err := f.datapath.SetNATBackends(backends); err != nil {
		return err
	}
	f.backends = backends
	return nil
}

// place has hosts and tenants of an update ready for its attachments.
func (f *fullNAT) place(next networkSet) error {
	if !f.isOn() {
		return nil
	}
	vnis, names := map[uint32]bool{}, map[string]bool{}
	for key, a := range next.attachments {
		if f.is(a) {
			names[a.Tenant] = true
		}
		vnis[key.VNI] = vnis[key.VNI] || f.is(a) || f.sessions[key]
	}
	var hosts []nat.Host
	for number, h := range next.hosts {
		if slices.ContainsFunc(h.VNIs, func(vni uint32) bool { return vnis[vni] }) {
			v4, v6 := vnet.Tunnels(h.Addresses)
			hosts = append(hosts, nat.Host{Number: number, V4: v4, V6: v6})
		}
	}
	delete(names, "")
	return errors.Join(f.datapath.SetNATHosts(hosts), f.setTenants(next, names))
}

// setTenants gives numbers to tenants, and each its part: half of the sessions belong to them in equal parts, the rest is
// lent. A quarter of what one may have may be half-open. A number stays a tenant's as long as others are free.
func (f *fullNAT) setTenants(next networkSet, names map[string]bool) error {
	taken := map[uint32]bool{}
	for _, number := range f.adopted {
		taken[number] = true
	}
	if len(f.tenants)+len(names) > maxNATTenants {
		maps.DeleteFunc(f.tenants, func(name string, _ uint32) bool { return !names[name] })
	}
	given := map[uint32]bool{0: true}
	for _, number := range f.tenants {
		given[number] = true
	}
	for key, number := range f.adopted { // the tables of the process before have them
		if name := next.attachments[key].Tenant; name != "" && f.tenants[name] == 0 && !given[number] {
			f.tenants[name], given[number] = number, true
		}
	}
	fresh := uint32(1)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if f.tenants[name] != 0 {
			continue
		}
		for given[fresh] || taken[fresh] {
			fresh++
		}
		if fresh > maxNATTenants {
			return fmt.Errorf("tenants of networks with full NAT are more than %d", maxNATTenants)
		}
		f.tenants[name], given[fresh] = fresh, true
	}
	return f.share(names)
}

// share divides the table among tenants.
func (f *fullNAT) share(names map[string]bool) error {
	rows, tenants := uint32(f.datapath.MaxNATSessions()), uint32(max(1, len(names)))
	lent, own := rows/2, rows/2/tenants
	most := own + lent
	if tenants > 1 {
		most = own + lent/2
	}
	err := f.datapath.SetNATTenant(0, lent, 0, 0)
	for name, number := range f.tenants {
		if names[name] {
			err = errors.Join(err, f.datapath.SetNATTenant(number, own, most, max(1, most/4)))
		} else {
			err = errors.Join(err, f.datapath.SetNATTenant(number, 0, 0, 0))
		}
	}
	return err
}

// complete has what an update takes away go, after its attachments were set.
func (f *fullNAT) complete(next networkSet) error {
	if !f.isOn() {
		return nil
	}
	isGone := func(key vnet.AttachmentKey) bool { _, there := next.attachments[key]; return !there }
	maps.DeleteFunc(f.sessions, func(key vnet.AttachmentKey, _ bool) bool { return isGone(key) })
	for key, a := range next.attachments {
		if f.is(a) {
			f.sessions[key] = true
		}
		if a.Tenant != "" {
			delete(f.adopted, key)
		}
	}
	maps.DeleteFunc(f.adopted, func(key vnet.AttachmentKey, _ uint32) bool { return isGone(key) })
	return f.setBackends(next.natBackends())
}

// warnings are for operators, one line each.
func (f *fullNAT) warnings(s networkSet) (lines []string) {
	asked := [2]int{}
	for key, a := range s.attachments {
		if a.NAT && !f.is(a) {
			asked[familyIndex(key.VIP)]++
		}
	}
	for i, family := range []model.Family{model.IPv4, model.IPv6} {
		if asked[i] > 0 {
			lines = append(lines, fmt.Sprintf(
				"%d VIPs in networks ask for full NAT in the mux, and this one has no NAT prefix of %s: servers' hosts do it for what comes here", asked[i], family))
		}
	}
	return lines
}

// usage is what tenants have of the sessions, by name.
func (f *fullNAT) usage() (all []*weirv1.TenantRows, refused map[string]uint64, err error) {
	refused = map[string]uint64{}
	if !f.isOn() {
		return nil, refused, nil
	}
	for _, name := range slices.Sorted(maps.Keys(f.tenants)) {
		of, err := f.datapath.NATUsage(f.tenants[name])
		if err != nil {
			return nil, nil, err
		}
		all = append(all, &weirv1.TenantRows{Tenant: name, Used: uint64(max(of.Rows, 0)), Limit: uint64(of.Most)})
		refused[name] = of.Refused
	}
	return all, refused, nil
}

// sample puts the metrics of sessions.
func (f *fullNAT) sample(to *telemetry.Sample) {
	if !f.isOn() {
		return
	}
	telemetry.Put(to, "weir_mux_nat_session_capacity", f.datapath.MaxNATSessions())
	tenants, refused, err := f.usage()
	if err != nil {
		to.Fail("weir_mux_nat_tenant_sessions", err)
		return
	}
	for _, of := range tenants {
		telemetry.Put(to, "weir_mux_nat_tenant_sessions", of.GetUsed(), of.GetTenant())
		telemetry.Put(to, "weir_mux_nat_tenant_session_limit", of.GetLimit(), of.GetTenant())
		telemetry.Put(to, "weir_mux_nat_tenant_refused_total", refused[of.GetTenant()], of.GetTenant())
	}
}
