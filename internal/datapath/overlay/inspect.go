package overlay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/bits"
	"net/netip"
	"os"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/pin"
	"github.com/weirlb/weir/internal/model"
)

// ErrNotLoaded means that no data plane is pinned at the path.
var ErrNotLoaded = errors.New("no data plane of virtual networks runs here")

// View reads the tables of a data plane that runs, whoever has it open.
type View struct {
	d     *Datapath
	Ports []Port                // of clients, by interface
	Size  Size                  // of the tables
	Local map[bool]netip.Prefix // by whether of IPv4
}

// Size is that of a data plane's tables.
type Size struct{ Sets, Flows uint32 }

// OpenView opens the tables that are pinned at pinPath.
func OpenView(pinPath string) (*View, error) {
	if _, err := os.Stat(pin.Live(pinPath, "")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open %s: %w", pinPath, ErrNotLoaded)
	}
	spec, err := loadOverlay()
	if err != nil {
		return nil, fmt.Errorf("read overlay's programs: %w", err)
	}
	v := &View{d: &Datapath{}}
	if v.d.verdicts, err = abi.VerdictsOf(spec); err != nil {
		return nil, err
	}
	live := map[string]*ebpf.Map{}
	defer closeMaps(live)
	for name := range spec.Maps {
		if name == constants {
			continue
		}
		if live[name], err = ebpf.LoadPinnedMap(pin.Live(pinPath, pinName(name)), nil); err != nil {
			delete(live, name)
			return nil, fmt.Errorf("open table %s: %w", pinName(name), err)
		}
	}
	if err := v.open(live); err != nil {
		return nil, errors.Join(err, v.Close())
	}
	return v, nil
}

// open takes what it needs of the tables, which it leaves to the caller.
func (v *View) open(live map[string]*ebpf.Map) error {
	d := v.d
	settings := overlayOverlaySettings{}
	if err := live[settingsTable].Lookup(uint32(0), &settings); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	d.config.Local4, d.config.Local6 = localPrefixes(settings)
	v.Local = map[bool]netip.Prefix{true: d.config.Local4, false: d.config.Local6}
	v.Size = Size{Sets: live[overlayMapSessionSets].MaxEntries(), Flows: live[overlayMapBypassFlows].MaxEntries()}
	if err := (&ebpf.Collection{Maps: live}).Assign(&d.objects.overlayMaps); err != nil {
		return fmt.Errorf("open tables: %w", err)
	}
	var err error
	if d.Table, err = Map(d.objects.SessionSets); err != nil {
		return err
	}
	d.Network = newNetwork(&d.objects, d.config.Local4, d.config.Local6)
	d.Clients = newClients(&d.objects, d.links, &d.mu)
	d.Statistics = d.statistics
	if err := d.Network.read(); err != nil {
		return err
	}
	v.Ports, err = d.readPorts()
	return err
}

// localPrefixes are those that programs run with; not valid: none.
func localPrefixes(s overlayOverlaySettings) (v4, v6 netip.Prefix) {
	if s.Local4Mask != 0 {
		var first [4]byte
		binary.NativeEndian.PutUint32(first[:], s.Local4)
		v4 = netip.PrefixFrom(netip.AddrFrom4(first), bits.OnesCount32(s.Local4Mask))
	}
	if s.Local6 != [2]uint32{} {
		v6 = netip.PrefixFrom(abi.Address([4]uint32{s.Local6[0], s.Local6[1]}), 48)
	}
	return v4, v6
}

// readPorts are the ports of the tables, by interface.
func (c *Clients) readPorts() ([]Port, error) {
	rows, err := abi.ReadTable[uint32, overlayOverlayPort](c.objects.Ports)
	if err != nil {
		return nil, fmt.Errorf("read ports: %w", err)
	}
	addresses, err := abi.ReadTable[overlayNetworkAddress, overlayOverlayPortAddress](c.objects.PortAddresses)
	if err != nil {
		return nil, fmt.Errorf("read addresses of ports: %w", err)
	}
	var all []Port
	for _, ifindex := range slices.Sorted(maps.Keys(rows)) {
		p := Port{Ifindex: int(ifindex), VNI: rows[ifindex].Vni, Flows: rows[ifindex].Most}
		for key, of := range addresses {
			if of.Ifindex == ifindex {
				p.MAC, p.Addresses = of.Mac, append(p.Addresses, abi.Address(key.Address.Words))
			}
		}
		slices.SortFunc(p.Addresses, netip.Addr.Compare)
		all = append(all, p)
	}
	return all, nil
}

// Whois finds the client that a local address and port is.
func (v *View) Whois(local netip.AddrPort) (Peer, error) { return v.d.Whois(local) }

// Flows are the bypass flows of this host's clients.
func (v *View) Flows() ([]Flow, error) { return v.d.Flows() }

// Sessions are those with servers on this host, of every state.
func (v *View) Sessions() []Session { return slices.Collect(v.d.All()) }

// Attachments are those that are set, by number.
func (v *View) Attachments() map[uint32]Attachment { return v.d.Attachments() }

// Rules are the backends of this host, by number.
func (v *View) Rules() map[uint32]Rule { return v.d.Rules() }

// Verdicts are counters by verdict.
func (v *View) Verdicts() (map[string]model.Counter, error) { return v.d.Verdicts() }

// Close lets go of the tables.
func (v *View) Close() error {
	err := v.d.objects.overlayMaps.Close()
	if v.d.Table != nil {
		err = errors.Join(err, v.d.Table.Close())
	}
	return err
}

// Unload removes the data plane that is pinned at pinPath; none there is no error.
func Unload(pinPath string) error {
	if _, err := os.Stat(pinPath); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	folder, err := pin.Open(pinPath)
	if err != nil {
		return fmt.Errorf("unload data plane of virtual networks: %w", err)
	}
	return errors.Join(folder.Remove(), folder.Close())
}
