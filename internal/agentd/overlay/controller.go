package overlay

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/datapath/overlay"
	"github.com/weirlb/weir/internal/datapath/overlay/reset"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/netlink"
	"github.com/weirlb/weir/internal/wire"
)

// Config is what a Controller needs of the host.
type Config struct {
	PinPath  string // folder on a bpffs, of these programs alone
	DataDir  string // has the interfaces that weir-agent port has added; empty: none are
	Uplink   string // interface that VXLAN comes by
	Sessions int    // room for sessions with servers here
	Flows    int    // room for bypass flows of clients here
	// Seal is what the agent's own programs know packets by that these programs send.
	Seal func() ([2]uint32, error)
	Log  *slog.Logger
}

// Host is what the programs need of the rest of the agent.
type Host struct {
	Backends   map[model.HostBackendKey]model.HostBackend
	Interfaces map[netip.Addr]int // of workloads that are on the host
	Muxes      []netip.Prefix     // that packets of muxes come from
}

// Controller keeps a host's data plane of virtual networks as the manager tells. Its methods may be called from several
// goroutines, in the uplink's network namespace.
type Controller struct {
	config Config
	sender reset.Sender

	mu          sync.Mutex
	wanted      wanted
	secrets     []model.SYNSecret // of muxes' SYN cookies
	detached    wanted            // what was wanted when an attachment went
	until       time.Time         // when that is forgotten
	heard       bool              // a snapshot has come
	datapath    *overlay.Datapath // nil: nothing is loaded
	local       [2]netip.Prefix   // that it runs with
	uplink      netlink.Interface // likewise
	attachments *numbers[vnet.AttachmentKey]
	rules       *numbers[ruleKey]
	backends    counters
	served      map[uint32]model.HostBackend // by the number of its rule
	tenants     *numbers[string]
	lentTo      map[uint32]uint32 // numbers of tenants by VNI, of an earlier process that knew their names
	warnings    map[string][]string
	state       state
	moves       moves
	host        *Host // as Program was told last; nil: it was not since the snapshot

	interfaces   Interfaces
	interfacesAt os.FileInfo // the file as it was read
}

// ruleKey is what a rule is known by: a VIP's endpoint, and the address of this host that its packets come to.
type ruleKey struct {
	service netip.AddrPort
	tunnel  netip.Addr
	udp     bool // else TCP
}

func (k ruleKey) compare(other ruleKey) int {
	protocols := cmp.Compare(protocolOf(k.udp), protocolOf(other.udp))
	return cmp.Or(k.service.Compare(other.service), k.tunnel.Compare(other.tunnel), protocols)
}

func protocolOf(udp bool) model.Protocol {
	if udp {
		return model.UDP
	}
	return model.TCP
}

// Numbers that tables have room for; see bpf/overlay/maps.h.
const (
	mostAttachments = 1<<14 - 1
	mostRules       = 1<<14 - 1
	mostTenants     = 4096
)

// New adopts the data plane that is pinned, if there is one. One that can't be adopted goes on by itself, and is tried again
// when the manager tells of networks.
func New(config Config) *Controller {
	c := &Controller{config: config, warnings: map[string][]string{}}
	c.forgetNumbers()
	if err := c.openLive(); err != nil && !errors.Is(err, overlay.ErrNotLoaded) {
		c.note("adopt", err)
	}
	return c
}

// openLive opens what is pinned, as it is.
func (c *Controller) openLive() error {
	view, err := overlay.OpenView(c.config.PinPath)
	if err != nil {
		return err
	}
	local := [2]netip.Prefix{view.Local[true], view.Local[false]}
	if err := view.Close(); err != nil {
		return err
	}
	return c.open(local)
}

func (c *Controller) forgetNumbers() {
	c.attachments = newNumbers("attachments", mostAttachments, vnet.AttachmentKey.Compare)
	c.rules = newNumbers("rules", mostRules, ruleKey.compare)
	c.backends = newCounters()
	c.tenants = newNumbers("tenants of networks", mostTenants, cmp.Compare[string])
	c.lentTo = map[uint32]uint32{}
}

// Close lets go of the data plane, which goes on.
func (c *Controller) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.sender.Close()
	if c.datapath != nil {
		err = errors.Join(err, c.datapath.Close())
		c.datapath = nil
	}
	return err
}

// open loads the programs, or adopts those that run, with what they know.
func (c *Controller) open(local [2]netip.Prefix) error {
	uplink, err := netlink.FindInterface(c.config.Uplink)
	if err != nil {
		return err
	}
	seal, err := c.config.Seal()
	if err != nil {
		return err
	}
	c.datapath, err = overlay.Open(overlay.Config{
		PinPath: c.config.PinPath, Sets: setsFor(c.config.Sessions), Flows: uint32(c.config.Flows), Uplink: uplink.Index, MTU: uint32(uplink.MTU),
		Local4: local[0], Local6: local[1], Seal: seal, Log: c.config.Log,
	})
	if err != nil {
		return err
	}
	c.local, c.uplink = local, uplink
	c.adopt()
	delete(c.warnings, "adopt")
	c.config.Log.Info("programs of virtual networks run", "uplink", uplink.Name)
	return nil
}

// setsFor is the least power of two of sets with so many rows.
func setsFor(rows int) uint32 {
	sets := uint32(1)
	for int(sets)*overlay.Ways < rows {
		sets *= 2
	}
	return sets
}

// adopt learns the numbers that an earlier process has given.
func (c *Controller) adopt() {
	c.forgetNumbers()
	for number, a := range c.datapath.Attachments() {
		c.attachments.adopt(vnet.AttachmentKey{VNI: a.VNI, VIP: a.VIP}, number)
		c.lentTo[a.VNI] = a.Tenant
	}
	for number, r := range c.datapath.Rules() {
		c.rules.adopt(ruleKey{r.Service, r.Tunnel, r.IsUDP}, number)
	}
	attachments, rules := map[uint32]bool{}, map[uint32]bool{}
	c.note("counters", c.backends.learn(c.datapath))
	for s := range c.datapath.All() {
		attachments[s.Attachment], rules[s.Rule] = true, true
		c.backends.quarantine(s.Counters)
	}
	for number := range attachments {
		c.attachments.quarantine(number)
	}
	for number := range rules {
		c.rules.quarantine(number)
	}
}

// Note takes what an update says of virtual networks, and the secrets of muxes' SYN cookies that are valid. It says whether
// that changes anything. Program brings it into force.
func (c *Controller) Note(update wire.HostNetworks, secrets []model.SYNSecret, snapshot bool) (changed bool) {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = c.heard || snapshot
	was := c.wanted
	changed = c.wanted.note(update, snapshot) || !slices.Equal(c.secrets, secrets)
	c.secrets = secrets
	changed = c.moves.note(update.Moved, time.Now()) || changed
	if c.heard && c.wanted.lacks(was) {
		c.detached, c.until = was.with(c.lingering()), time.Now().Add(detachTime)
	}
	return changed
}

// detachTime is how long clients of an attachment that is gone can be reached: its servers' hosts reset their connections
// meanwhile.
const detachTime = 5 * time.Second

// lingering is what was wanted until a moment ago.
func (c *Controller) lingering() wanted {
	if !time.Now().Before(c.until) {
		c.detached = wanted{}
	}
	return c.detached
}

// inForce is what the tables are to have: what is wanted, and what clients of attachments need that are just gone.
func (c *Controller) inForce() wanted { return c.wanted.with(c.lingering()) }

// Program has the data plane do what the manager has told, with the host as it is now. Without a network it does nothing.
func (c *Controller) Program(host Host) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.heard || c.datapath == nil && !c.wanted.any() {
		return nil
	}
	host.Backends = maps.Clone(host.Backends) // the caller goes on changing its own
	c.host = &host
	_, err := c.followInterfaces()
	c.note("interfaces", err)
	if err := c.ready(); err != nil {
		return fmt.Errorf("virtual networks: %w", err)
	}
	if err := c.program(host); err != nil {
		return fmt.Errorf("virtual networks: %w", err)
	}
	delete(c.warnings, "program")
	c.moves.follow(c.datapath, time.Now())
	return nil
}

// ready has the programs loaded, at the uplink as it is now, with the local prefixes that are wanted.
func (c *Controller) ready() error {
	v4, v6 := c.wanted.localPrefixes()
	local := [2]netip.Prefix{v4, v6}
	if c.datapath != nil && c.wanted.any() && local != c.local {
		for range c.datapath.All() {
			return fmt.Errorf("change local prefixes from %v to %v: sessions have addresses of the old ones: detach VIPs until they are over", c.local, local)
		}
		if err := c.unload(); err != nil {
			return err
		}
	}
	if c.datapath == nil {
		return c.open(local)
	}
	uplink, err := netlink.FindInterface(c.config.Uplink)
	if err != nil {
		return err
	}
	if uplink.Index == c.uplink.Index && uplink.MTU == c.uplink.MTU && uplink.MAC == c.uplink.MAC {
		return nil
	}
	if err := c.datapath.SetUplink(uplink.Index, uint32(uplink.MTU)); err != nil {
		return err
	}
	c.uplink = uplink
	return nil
}

// unload removes the data plane.
func (c *Controller) unload() error {
	err := c.datapath.Unload()
	c.datapath = nil
	c.forgetNumbers()
	c.state = state{}
	clear(c.warnings)
	_, failed := netlink.KeepVXLANSockets(nil)
	return errors.Join(err, failed)
}

// Warnings are what keeps virtual networks from working, a line each.
func (c *Controller) Warnings() []string {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, of := range slices.Sorted(maps.Keys(c.warnings)) {
		all = append(all, c.warnings[of]...)
	}
	return all
}
