package sonic

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/hardware"
)

// Config of a driver. Limits are those of the ASIC, which SONiC tells only in part; zero: those of SONiC's VXLAN overlay ECMP.
type Config struct {
	Network, Address              string // of the databases; empty: unix, /var/run/redis/redis.sock
	VNET                          string // ours alone
	Hosts, ECMP, Tunnels, Members uint32
	Groups                        uint32        // different sets of members
	Patience                      time.Duration // what the agent has not done then, it has refused; zero: three seconds
}

// Driver programs a switch.
type Driver struct {
	config    Config
	databases *databases
	boot      string
	tables    *hardware.Inventory // nil: to be read
}

var _ hardware.Driver = (*Driver)(nil)

// names of VNETs, as they can stand in keys and patterns.
var names = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// How often the agent's answer is looked for.
const pollPause = 5 * time.Millisecond

// bootKey is in APPL_DB, which SONiC flushes when its agents start anew.
const bootKey = "WEIR_SWITCH_BOOT"

// New opens the driver. The databases need not be there yet.
func New(config Config) (*Driver, error) {
	if config.VNET == "" {
		config.VNET = "Vnet_weir"
	}
	if !names.MatchString(config.VNET) {
		return nil, fmt.Errorf("open the switch: %q is no name of a VNET", config.VNET)
	}
	if config.Network == "" {
		config.Network, config.Address = "unix", "/var/run/redis/redis.sock"
	}
	for value, otherwise := range map[*uint32]uint32{
		&config.Hosts: 16000, &config.ECMP: 512 * 128, &config.Tunnels: 4000, &config.Members: 128, &config.Groups: 512,
	} {
		if *value == 0 {
			*value = otherwise
		}
	}
	config.Members = min(config.Members, config.ECMP)
	if config.Patience == 0 {
		config.Patience = 3 * time.Second
	}
	return &Driver{config: config, databases: openDatabases(config.Network, config.Address)}, nil
}

// source is the address of the VNET's VXLAN tunnel.
func (d *Driver) source(ctx context.Context) (netip.Addr, error) {
	vnet := "VNET|" + d.config.VNET
	about, err := d.databases.fields(ctx, configDB, []string{vnet}, "vxlan_tunnel", "vni")
	if err != nil {
		return netip.Addr{}, err
	}
	tunnel := about[vnet][0]
	if tunnel == "" {
		return netip.Addr{}, fmt.Errorf("CONFIG_DB has no %s with a vxlan_tunnel: set it up", vnet)
	}
	if vni := about[vnet][1]; vni != strconv.Itoa(hardware.VXLANNetwork) {
		return netip.Addr{}, fmt.Errorf("CONFIG_DB has vni %.20q for %s: hosts take packets of switches with %d alone", vni, vnet, hardware.VXLANNetwork)
	}
	key := "VXLAN_TUNNEL|" + tunnel
	fields, err := d.databases.fields(ctx, configDB, []string{key}, "src_ip")
	if err != nil {
		return netip.Addr{}, err
	}
	source, err := netip.ParseAddr(fields[key][0])
	if err != nil {
		return netip.Addr{}, fmt.Errorf("CONFIG_DB has no %s with a src_ip: set it up", key)
	}
	return source.Unmap(), nil
}

// read returns what the switch has. A change that the agent is at is waited for, but not for ever.
func (d *Driver) read(ctx context.Context, source netip.Addr) (*hardware.Inventory, error) {
	vips, err := d.vips(ctx)
	if err != nil {
		return nil, err
	}
	routes, err := d.routes(ctx, vips)
	if err != nil {
		return nil, err
	}
	all := &hardware.Inventory{}
	for vip, r := range routes {
		if !r.settled() {
			if r, err = d.wait(ctx, vip, route.settled); err != nil {
				return nil, err
			}
		}
		if len(r.active) > 0 {
			all.Put(r.entry(vip, source))
		}
	}
	return all, nil
}

// wait reads a VIP until it is done, or the agent has had its time.
func (d *Driver) wait(ctx context.Context, vip netip.Addr, done func(route) bool) (r route, err error) {
	for end := time.Now().Add(d.config.Patience); ; {
		routes, err := d.routes(ctx, []netip.Addr{vip})
		if err != nil {
			return r, err
		}
		if r = routes[vip]; done(r) || time.Now().After(end) {
			return r, nil
		}
		select {
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(pollPause):
		}
	}
}

// Capabilities implements hardware.Driver.
func (d *Driver) Capabilities(ctx context.Context) (hardware.Capabilities, error) {
	source, err := d.source(ctx)
	if err != nil {
		return hardware.Capabilities{}, err
	}
	tables, err := d.read(ctx, source)
	if err != nil {
		return hardware.Capabilities{}, err
	}
	return d.capabilities(ctx, source, tables)
}

// capabilities counts what is ours, and takes from SONiC's resource monitor how much less is available. It is late by up to
// five minutes.
func (d *Driver) capabilities(ctx context.Context, source netip.Addr, tables *hardware.Inventory) (hardware.Capabilities, error) {
	const monitor = "CRM:STATS"
	stats, err := d.databases.fields(ctx, countersDB, []string{monitor}, "crm_stats_ipv4_route_available", "crm_stats_nexthop_group_member_available")
	if err != nil {
		return hardware.Capabilities{}, err
	}
	table := func(size, ours uint32, available string) hardware.Table {
		if n, err := strconv.ParseUint(available, 10, 32); err == nil && uint32(n) < size {
			ours = max(ours, size-uint32(n))
		}
		return hardware.Table{Size: size, Used: ours}
	}
	return hardware.Capabilities{
		Driver: "sonic", Encapsulations: []hardware.Encapsulation{hardware.VXLAN},
		Outer4: source.Is4(), Outer6: source.Is6(), MaxMembers: d.config.Members,
		Hosts:   table(d.config.Hosts, tables.Hosts(), stats[monitor][0]),
		ECMP:    table(d.config.ECMP, tables.ECMP(), stats[monitor][1]),
		Tunnels: table(d.config.Tunnels, tables.Tunnels(), ""),
	}, nil
}

// Read implements hardware.Driver.
func (d *Driver) Read(ctx context.Context) ([]hardware.Entry, error) {
	source, err := d.source(ctx)
	if err != nil {
		return nil, err
	}
	tables, err := d.read(ctx, source)
	if err != nil {
		return nil, err
	}
	return tables.Entries(), nil
}

// Boot implements hardware.Driver. The database's own run is part of it: SONiC's agents start anew with it.
func (d *Driver) Boot(ctx context.Context) (string, error) {
	result, err := d.databases.run(ctx, applDB, "read the boot", bootScript, []string{bootKey}, rand.Text())
	if err != nil {
		return "", err
	}
	marker, _ := result.(string)
	var info string
	err = retry(ctx, "read the database's run", func() (err error) {
		info, err = d.databases.all[applDB].Info(ctx, "server").Result()
		return err
	})
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(info) {
		if run, ok := strings.CutPrefix(strings.TrimSpace(line), "run_id:"); ok && len(marker) <= valueMost {
			boot := run + "/" + marker
			if d.boot != boot {
				d.boot, d.tables = boot, nil
			}
			return boot, nil
		}
	}
	return "", errors.New("read the boot: the database does not tell its run")
}

// Close implements hardware.Driver. What is programmed stays.
func (d *Driver) Close() error { return d.databases.close() }
