package overlay

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/flowhash"
)

// Tables that the library names for variables.
const (
	settingsTable = ".data.settings"
	secretsTable  = ".data.secrets"
	constants     = ".rodata" // what programs are loaded with: no other version goes on with that
)

const remedy = "run `weir-agent unload` to remove the data plane that runs, then start again"

// load brings tables and programs into the kernel: the live tables if there are any; the programs always this
// binary's own.
func (d *Datapath) load() error {
	spec, err := loadOverlay()
	if err != nil {
		return fmt.Errorf("read overlay's programs: %w", err)
	}
	if d.verdicts, err = abi.VerdictsOf(spec); err != nil {
		return err
	}
	key := make([]byte, flowhash.KeySize)
	_, _ = rand.Read(key) // never fails
	spec.Maps[overlayMapSessionSets].MaxEntries = d.config.Sets
	if d.config.Flows != 0 {
		spec.Maps[overlayMapBypassFlows].MaxEntries = d.config.Flows
	}
	// The library adds the flag while it makes the map; adoption compares it before.
	for _, name := range []string{settingsTable, secretsTable, ".data.hash_key", ".data.fbt_keys", ".data.answer_key"} {
		spec.Maps[name].Flags |= unix.BPF_F_MMAPABLE
	}
	err = errors.Join(spec.Variables[overlayVarHashKey].Set(key), spec.Variables[overlayVarSettings].Set(d.config.settings()))
	if err != nil {
		return fmt.Errorf("set overlay's settings: %w", err)
	}
	if d.folder != nil && d.folder.HasLive() {
		if err := d.adopt(spec); err != nil {
			return fmt.Errorf("adopt overlay's data plane: %w; %s", err, remedy)
		}
		return nil
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		return fmt.Errorf("load overlay's programs: %w", err)
	}
	defer collection.Close()
	if d.folder != nil {
		if err := d.folder.Publish(func(folder string) error { return pinTables(folder, collection.Maps) }); err != nil {
			return err
		}
	}
	return collection.Assign(&d.objects)
}

// adopt goes on with what is live.
func (d *Datapath) adopt(spec *ebpf.CollectionSpec) error {
	live, err := d.openLive(spec)
	defer closeMaps(live)
	if err != nil {
		return err
	}
	settings, err := d.liveSettings(live)
	if err != nil {
		return err
	}
	switch sets := live[overlayMapSessionSets].MaxEntries(); {
	case d.config.Sets <= sets: // rows keep their numbers, so no table becomes smaller
	case settings.OldMask != settings.SetMask:
		d.config.Log.Warn("session table grows once the rows of the last growth are gone", "live", sets)
	default:
		return d.grow(spec, live, settings)
	}
	spec.Maps[overlayMapSessionSets].MaxEntries = live[overlayMapSessionSets].MaxEntries()
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: live})
	if err != nil {
		return fmt.Errorf("load programs: %w", err)
	}
	defer collection.Close()
	added := maps.Clone(collection.Maps)
	maps.DeleteFunc(added, func(name string, _ *ebpf.Map) bool { return live[name] != nil })
	if err := pinTables(d.folder.Live(""), added); err != nil {
		return err
	}
	if err := collection.Assign(&d.objects); err != nil {
		return err
	}
	settings.Uplink, settings.Mtu, settings.Seal = uint32(d.config.Uplink), d.config.MTU, d.config.Seal
	settings.UplinkMac = macOf(d.config.Uplink)
	settings.Paused = 0 // of a growth that did not end
	return d.objects.Settings.Set(settings)
}

// openLive opens the pinned tables. Those of an older version may lack some.
func (d *Datapath) openLive(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	live := make(map[string]*ebpf.Map)
	for name, ours := range spec.Maps {
		if name == constants {
			continue
		}
		table, err := ebpf.LoadPinnedMap(d.folder.Live(pinName(name)), nil)
		if errors.Is(err, fs.ErrNotExist) && name != overlayMapSessionSets && name != settingsTable {
			continue
		}
		if err != nil {
			return live, fmt.Errorf("open table %s: %w", pinName(name), err)
		}
		if name == overlayMapBypassFlows && table.MaxEntries() != ours.MaxEntries {
			// What clients' flows have learnt they learn again.
			if err := errors.Join(table.Close(), os.Remove(d.folder.Live(pinName(name)))); err != nil {
				return live, fmt.Errorf("replace table %s: %w", pinName(name), err)
			}
			continue
		}
		live[name] = table
		if err := abi.SameLayout(ours, table); err != nil {
			return live, fmt.Errorf("table %s: %w", pinName(name), err)
		}
		if name != overlayMapSessionSets && table.MaxEntries() != ours.MaxEntries {
			return live, fmt.Errorf("table %s has %d rows, not %d", pinName(name), table.MaxEntries(), ours.MaxEntries)
		}
	}
	return live, nil
}

// liveSettings reads those that the live programs have. With other local prefixes servers would know clients by
// addresses that are nobody's.
func (d *Datapath) liveSettings(live map[string]*ebpf.Map) (*overlayOverlaySettings, error) {
	s, ours := new(overlayOverlaySettings), d.config.settings()
	if err := live[settingsTable].Lookup(uint32(0), s); err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	if s.Local4 != ours.Local4 || s.Local4Mask != ours.Local4Mask || s.Local6 != ours.Local6 {
		return nil, fmt.Errorf("sessions have addresses of other local prefixes than %s and %s", d.config.Local4, d.config.Local6)
	}
	return s, nil
}

func (c Config) settings() *overlayOverlaySettings {
	s := &overlayOverlaySettings{
		SetMask: c.Sets - 1, OldMask: c.Sets - 1, Uplink: uint32(c.Uplink), Mtu: c.MTU, Seal: c.Seal, UplinkMac: macOf(c.Uplink),
	}
	if c.Local4.IsValid() {
		s.Local4 = abi.Words(c.Local4.Masked().Addr())[3]
		mask := binary.BigEndian.AppendUint32(nil, ^uint32(0)<<(32-c.Local4.Bits()))
		s.Local4Mask = binary.NativeEndian.Uint32(mask)
	}
	if c.Local6.IsValid() {
		prefix, _ := c.Local6.Addr().Prefix(48)
		words := abi.Words(prefix.Addr())
		s.Local6 = [2]uint32(words[:2])
	}
	return s
}

func pinTables(folder string, tables map[string]*ebpf.Map) error {
	for name, table := range tables {
		if name == constants {
			continue
		}
		if err := table.Pin(filepath.Join(folder, pinName(name))); err != nil {
			return fmt.Errorf("pin table %s: %w", name, err)
		}
	}
	return nil
}

// pinName is a table's file name: a bpffs allows no dots.
func pinName(table string) string { return strings.TrimPrefix(table, ".data.") }

func closeMaps(tables map[string]*ebpf.Map) {
	for _, table := range tables {
		table.Close()
	}
}
