package sonic_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/drivertest"
	"github.com/weirlb/weir/internal/lab/netns"
)

const vnet = "Vnet_weir"

// database is a real Redis.
type database struct {
	t      *testing.T
	socket string
	stop   func()
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	d := &database{t: t, socket: filepath.Join(t.TempDir(), "redis.sock")}
	d.start()
	t.Cleanup(func() { d.stop() })
	return d
}

func (d *database) start() {
	d.t.Helper()
	var log netns.Log
	cmd := exec.Command("redis-server", "--port", "0", "--unixsocket", d.socket, "--save", "", "--appendonly", "no", "--dir", filepath.Dir(d.socket))
	cmd.Stdout, cmd.Stderr = &log, &log
	must(d.t, cmd.Start())
	d.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.Remove(d.socket)
	})
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if c, err := net.Dial("unix", d.socket); err == nil {
			_ = c.Close()
			return
		}
		if time.Now().After(end) {
			d.t.Fatalf("redis-server does not answer: %s", log.String())
		}
	}
}

func (d *database) client(number int) *redis.Client {
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: d.socket, DB: number, Protocol: 2, DisableIdentity: true})
	d.t.Cleanup(func() { _ = c.Close() })
	return c
}

// limits of the ASIC behind the agent; zero: a great many.
type limits = drivertest.Limits

// agent does what SONiC's orchestration agent does with VNET_ROUTE_TUNNEL_TABLE: it takes changes as ConsumerStateTable,
// keeps what the ASIC would have, writes STATE_DB, and says nothing of what does not fit.
type agent struct {
	t                    *testing.T
	appl, state, monitor *redis.Client
	limits               limits

	mu      sync.Mutex
	groups  map[string][]netip.Addr // by vnet:prefix, sorted
	foreign map[netip.Addr]bool
	asleep  bool
}

// pops is what consumer_state_table_pops.lua does.
var pops = redis.NewScript(`
local all = {}
for _, key in ipairs(redis.call('SPOP', KEYS[1], 128)) do
	local main, changed = KEYS[2] .. key, '_' .. KEYS[2] .. key
	if redis.call('SREM', KEYS[3], key) == 1 then
		redis.call('DEL', main)
	end
	local fields = redis.call('HGETALL', changed)
	for i = 1, #fields, 2 do
		redis.call('HSET', main, fields[i], fields[i + 1])
	end
	redis.call('DEL', changed)
	table.insert(all, {key, redis.call('HGET', main, 'endpoint') or ''})
end
return all`)

const table = "VNET_ROUTE_TUNNEL_TABLE"

// startAgent sets up the VNET, and has an agent run until the test ends or stop is called.
func startAgent(t *testing.T, d *database, of limits, v6 bool) (a *agent, stop func()) {
	t.Helper()
	a = &agent{
		t: t, appl: d.client(0), state: d.client(6), monitor: d.client(2), limits: of,
		groups: map[string][]netip.Addr{}, foreign: map[netip.Addr]bool{},
	}
	config := d.client(4)
	must(t, config.HSet(t.Context(), "VNET|"+vnet, "vxlan_tunnel", "tunnel", "vni", hardware.VXLANNetwork, "scope", "default").Err())
	must(t, config.HSet(t.Context(), "VXLAN_TUNNEL|tunnel", "src_ip", drivertest.Source(v6).String()).Err())
	ctx, cancel := context.WithCancel(context.Background())
	changes := a.appl.Subscribe(ctx, table+"_CHANNEL@0")
	_, err := changes.Receive(ctx)
	must(t, err)
	a.publish(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			a.take(ctx)
			select {
			case <-ctx.Done():
				return
			case <-changes.Channel():
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
		_ = changes.Close()
	})
	t.Cleanup(stop)
	return a, stop
}

// sleep has the agent take nothing.
func (a *agent) sleep(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asleep = on
}

func (a *agent) take(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asleep {
		return
	}
	changes, err := pops.Run(ctx, a.appl, []string{table + "_KEY_SET", table + ":", table + "_DEL_SET"}).Slice()
	if err != nil {
		return
	}
	for _, change := range changes {
		pair, ok := change.([]any)
		if !ok || len(pair) != 2 {
			continue
		}
		a.change(ctx, pair[0].(string), pair[1].(string))
	}
}

// change takes one key, with its endpoints or none.
func (a *agent) change(ctx context.Context, key, endpoint string) {
	name, prefix, _ := strings.Cut(key, ":")
	stateKey := table + "|" + name + "|" + prefix
	if endpoint == "" {
		delete(a.groups, key)
		a.publish(ctx)
		a.state.Del(ctx, stateKey)
		return
	}
	var members []netip.Addr
	for field := range strings.SplitSeq(endpoint, ",") {
		address, err := netip.ParseAddr(field)
		if err != nil {
			return
		}
		members = append(members, address)
	}
	slices.SortFunc(members, netip.Addr.Compare)
	before, replaces := a.groups[key]
	a.groups[key] = members
	if !a.fits(len(members)) {
		delete(a.groups, key)
		if replaces {
			a.groups[key] = before
		}
		return
	}
	texts := make([]string, len(members))
	for i, m := range members {
		texts[i] = m.String()
	}
	a.publish(ctx)
	a.state.HSet(ctx, stateKey, "active_endpoints", strings.Join(texts, ","), "state", "active")
}

// used is what the ASIC would have in use.
func (a *agent) used() (hosts, members, tunnels uint32) {
	different := map[netip.Addr]bool{}
	for _, group := range a.groups {
		hosts++
		members += uint32(len(group))
		for _, m := range group {
			different[m] = true
		}
	}
	return hosts + uint32(len(a.foreign)), members, uint32(len(different))
}

func (a *agent) fits(group int) bool {
	hosts, members, tunnels := a.used()
	within := func(n, limit uint32) bool { return limit == 0 || n <= limit }
	return within(hosts, a.limits.Hosts) && within(members, a.limits.ECMP) && within(tunnels, a.limits.Tunnels) && within(uint32(group), a.limits.Members)
}

// publish is SONiC's resource monitor, which there is late by minutes.
func (a *agent) publish(ctx context.Context) {
	hosts, members, _ := a.used()
	for field, left := range map[string][2]uint32{
		"crm_stats_ipv4_route_available": {a.limits.Hosts, hosts}, "crm_stats_nexthop_group_member_available": {a.limits.ECMP, members},
	} {
		if left[0] != 0 {
			a.monitor.HSet(ctx, "CRM:STATS", field, fmt.Sprint(left[0]-min(left[0], left[1])))
		}
	}
}

func (a *agent) removeByHand(vip netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	prefix := netip.PrefixFrom(vip, vip.BitLen()).String()
	delete(a.groups, vnet+":"+prefix)
	must(a.t, a.appl.Del(a.t.Context(), table+":"+vnet+":"+prefix).Err())
	must(a.t, a.state.Del(a.t.Context(), table+"|"+vnet+"|"+prefix).Err())
	a.publish(a.t.Context())
}

func (a *agent) reboot() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, client := range []*redis.Client{a.appl, a.state, a.monitor} {
		must(a.t, client.FlushDB(a.t.Context()).Err())
	}
	a.groups, a.foreign = map[string][]netip.Addr{}, map[netip.Addr]bool{}
	a.publish(a.t.Context())
}

func (a *agent) putForeign(vip netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.foreign[vip] = true
	must(a.t, a.appl.HSet(a.t.Context(), "ROUTE_TABLE:"+vip.String(), "nexthop", "10.66.0.2", "ifname", "Ethernet0").Err())
	a.publish(a.t.Context())
}

func (a *agent) hasForeign(vip netip.Addr) bool {
	nexthop, err := a.appl.HGet(a.t.Context(), "ROUTE_TABLE:"+vip.String(), "nexthop").Result()
	return err == nil && nexthop == "10.66.0.2"
}

// port sets up two ports as SONiC's daemons do, and returns one of them.
func (d *database) port() drivertest.Port {
	d.t.Helper()
	const id = "oid:0x1000000000012"
	appl, count := d.client(0), d.client(2)
	put := func(c *redis.Client, key string, values ...any) {
		d.t.Helper()
		must(d.t, c.HSet(d.t.Context(), key, values...).Err())
	}
	put(appl, "PORT_TABLE:Ethernet4", "admin_status", "up", "oper_status", "up", "speed", "100000", "lanes", "5,6,7,8", "alias", "etp2")
	put(appl, "PORT_TABLE:Ethernet0", "admin_status", "up", "speed", "100000", "lanes", "1,2,3,4", "alias", "etp1")
	put(appl, "PORT_TABLE:PortConfigDone", "count", "2")
	put(appl, "PORT_TABLE:PortInitDone", "lanes", "0")
	put(appl, "LLDP_ENTRY_TABLE:eth0", "lldp_rem_sys_name", "console", "lldp_rem_port_id", "e9")
	put(count, "COUNTERS_PORT_NAME_MAP", "Ethernet0", "oid:0x1000000000011", "Ethernet4", id)
	counters := map[string]int{"SAI_PORT_STAT_IF_IN_OCTETS": 1 << 40, "SAI_PORT_STAT_IF_OUT_OCTETS": 7, "SAI_PORT_STAT_IF_IN_DISCARDS": 3, "SAI_PORT_STAT_IF_OUT_ERRORS": 4}
	exchange := func() {
		for name := range counters {
			counters[name] += 1500
			put(count, "COUNTERS:"+id, name, counters[name])
		}
	}
	exchange()
	return drivertest.Port{
		Name: "Ethernet4", Exchange: exchange,
		SetUp: func(up bool) {
			put(appl, "PORT_TABLE:Ethernet4", "oper_status", map[bool]string{true: "up", false: "down"}[up])
		},
		Hear: func(system, port string) {
			put(appl, "LLDP_ENTRY_TABLE:Ethernet4", "lldp_rem_sys_name", system, "lldp_rem_port_id", port, "lldp_rem_port_id_subtype", "5")
		},
	}
}
