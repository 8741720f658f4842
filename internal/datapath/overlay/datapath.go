package overlay

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
)

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package overlay -type overlay_role -type overlay_workload -type bypass_state overlay ../../../bpf/overlay/overlay.bpf.c -- -O2 -g -mcpu=v3 -Wall -Werror -I../../../bpf -I../../../bpf/include

// Config says where the data plane runs and how large it is.
type Config struct {
	PinPath string // folder on a bpffs; empty: pinned nowhere and attached to nothing
	Sets    uint32 // of sessions, a power of two; fewer than live ones have no effect
	Flows   uint32 // bypass flows of clients; 0: few
	Uplink  int    // ifindex of what VXLAN comes by
	MTU     uint32 // of it
	// Local prefixes: the server knows a client by an address of them. Of IPv6 48 bits; not valid: none.
	Local4, Local6 netip.Prefix
	Seal           [2]uint32 // what tells the programs' own packets at the uplink
	Log            *slog.Logger
}

// Datapath is the running data plane. Its methods may be called from any goroutine.
type Datapath struct {
	*Table
	*Tenants
	*Network
	*Clients
	*Statistics

	config   Config
	folder   *pin.Folder // nil: pinned nowhere
	objects  overlayObjects
	verdicts abi.Verdicts
}

// Open loads and attaches the data plane, or adopts the one that runs: its tables and sessions stay, its programs are
// replaced in place. It must be called in the uplink's network namespace, as must SetUplink and SetInterfaces.
func Open(config Config) (*Datapath, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	d := &Datapath{config: config}
	if config.PinPath != "" {
		folder, err := pin.Open(config.PinPath)
		if err != nil {
			return nil, err
		}
		d.folder = folder
	}
	if err := d.start(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (c Config) check() error {
	if c.Sets == 0 || c.Sets&(c.Sets-1) != 0 {
		return fmt.Errorf("load overlay's programs: %d sets are no power of two", c.Sets)
	}
	if c.Sets*Ways > MaxRows {
		return fmt.Errorf("load overlay's programs: %d sets have more rows than %d", c.Sets, MaxRows)
	}
	if c.Local4.IsValid() && uint64(c.Sets)*Ways > 1<<(32-c.Local4.Bits()) {
		return fmt.Errorf("load overlay's programs: %s has fewer addresses than the table rows, %d", c.Local4, c.Sets*Ways)
	}
	return nil
}

func (d *Datapath) start() error {
	if err := d.load(); err != nil {
		return err
	}
	var err error
	if d.Table, err = Map(d.objects.SessionSets); err != nil {
		return err
	}
	if d.Tenants, err = mapTenants(d.objects.Tenants); err != nil {
		return err
	}
	d.Network = newNetwork(&d.objects, d.config.Local4, d.config.Local6)
	d.Clients = newClients(&d.objects, d.links, &d.mu)
	d.Statistics = d.statistics
	if d.folder == nil {
		return nil
	}
	if err := d.Network.read(); err != nil {
		return err
	}
	d.Recount()
	l := d.links()
	return errors.Join(
		l.attachUplink(d.config.Uplink),
		l.updateInterfaces(serverPrefix, d.config.Log), l.updateInterfaces(clientPrefix, d.config.Log))
}

// Close lets go of the data plane, which goes on running if it is pinned.
func (d *Datapath) Close() error {
	err := d.objects.Close()
	if d.Table != nil {
		err = errors.Join(err, d.Table.Close())
	}
	if d.Tenants != nil {
		abi.Unmap(&d.raw)
	}
	if d.folder != nil {
		err = errors.Join(err, d.folder.Close())
	}
	return err
}

// Unload stops the data plane, removes it, and closes d.
func (d *Datapath) Unload() error {
	var err error
	if d.folder != nil {
		err = d.folder.Remove()
	}
	return errors.Join(err, d.Close())
}

// SetKeys sets the keys of FBTs to this host, and of answers from it that go by muxes.
func (d *Datapath) SetKeys(keys []fbt.Key) error {
	if err := d.objects.FbtKeys.Set(fbtKeys(keys)); err != nil {
		return fmt.Errorf("set keys of FBTs: %w", err)
	}
	makes := fbt.MakesOf(keys)
	if err := d.objects.AnswerKey.Set(&fbtKeys([]fbt.Key{makes}).Rows[makes.ID%fbt.Keys]); err != nil {
		return fmt.Errorf("set the key of answers: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answerKey = makes
	return nil
}

// Sweep frees the rows whose quarantine is over at a tick, and counts their tenants down. Of tenants that have used up
// most of their half-open sessions the oldest of these make way. Sessions that go on are given to goesOn, if that is not
// nil. To be called every second.
func (d *Datapath) Sweep(now uint32, goesOn func(Session)) Report {
	tenantOf := d.tenantOf()
	waiting := map[uint32][]Session{}
	for tenant, excess := range d.quotas.Pressed() {
		waiting[tenant] = make([]Session, 0, excess)
	}
	r := d.Table.Sweep(now,
		func(s Session) { d.quotas.Remove(tenantOf(s), s.Events&ClientACK == 0) },
		func(s Session) {
			tenant := tenantOf(s)
			if all, ok := waiting[tenant]; ok && s.isHalfOpen() && int32(now-s.Seen) > halfOpenAge {
				waiting[tenant] = append(all, s)
			}
			if goesOn != nil {
				goesOn(s)
			}
		})
	r.Dropped = d.dropOldest(waiting)
	return r
}

// halfOpenAge is how many ticks a handshake has before it may have to make way: a second.
const halfOpenAge = 60

// dropOldest frees the oldest half-open sessions of tenants, as many as are too many.
func (d *Datapath) dropOldest(waiting map[uint32][]Session) (dropped int) {
	for tenant, excess := range d.quotas.Pressed() {
		all := waiting[tenant]
		slices.SortFunc(all, func(a, b Session) int { return int(int32(a.Seen - b.Seen)) })
		for _, s := range all[:min(excess, len(all))] {
			if d.free(&s) {
				d.quotas.Remove(tenant, s.Events&ClientACK == 0)
				dropped++
			}
		}
	}
	return dropped
}

// Recount mends counts that a process which died has left wrong, and forgets the places of a smaller table when no row
// is in one any more. To be called now and then: it reads the table.
func (d *Datapath) Recount() {
	tenantOf := d.tenantOf()
	d.quotas.Recount(func(yield func(uint32, bool) bool) {
		for s := range d.All() {
			if !yield(tenantOf(s), s.Events&ClientACK == 0) {
				return
			}
		}
	})
	if err := d.forgetOldPlaces(); err != nil {
		d.config.Log.Error("session table's settings are not written", "err", err)
	}
}

// Verdicts are counters by verdict.
func (d *Datapath) Verdicts() (map[string]model.Counter, error) {
	return d.verdicts.Read(d.objects.Verdicts)
}

// Traffic is what went through an attachment.
type Traffic struct {
	In, Out   model.Counter // from clients, and from servers
	Opened    uint64
	Confirmed uint64 // of these, those that the client has acknowledged
	Refused   uint64 // for lack of room, or of the tenant's quota
	Resets    uint64 // sent to clients for segments of no session
}

// ForgetTraffic has an attachment's counters begin at zero: its number was another one's.
func (d *Datapath) ForgetTraffic(attachment uint32) error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}
	err = errors.Join(
		d.objects.Traffic.Put(attachment, make([]overlayOverlayTraffic, cpus)),
		d.objects.BypassTraffic.Put(attachment, make([]overlayBypassTraffic, cpus)))
	if err != nil {
		return fmt.Errorf("clear traffic of attachment %d: %w", attachment, err)
	}
	return nil
}

// Traffic adds up what the CPUs have counted of an attachment.
func (d *Datapath) Traffic(attachment uint32) (sum Traffic, err error) {
	var each []overlayOverlayTraffic
	if err := d.objects.Traffic.Lookup(attachment, &each); err != nil {
		return sum, fmt.Errorf("read traffic of attachment %d: %w", attachment, err)
	}
	for _, t := range each {
		sum.In.Packets, sum.In.Bytes = sum.In.Packets+t.In.Packets, sum.In.Bytes+t.In.Bytes
		sum.Out.Packets, sum.Out.Bytes = sum.Out.Packets+t.Out.Packets, sum.Out.Bytes+t.Out.Bytes
		sum.Opened += t.Opened
		sum.Confirmed += t.Confirmed
		sum.Refused += t.Refused
		sum.Resets += t.Resets
	}
	return sum, nil
}
