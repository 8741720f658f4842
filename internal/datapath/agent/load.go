package agent

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
)

// load brings maps and programs into the kernel: the live maps if there are any, the programs
// always this binary's own.
func (d *Datapath) load() error {
	if err := probeChecksumHelper(); err != nil {
		return err
	}
	spec, err := loadAgent()
	if err != nil {
		return fmt.Errorf("read agent's programs: %w", err)
	}
	if d.verdicts, err = abi.VerdictsOf(spec); err != nil {
		return err
	}
	d.size(spec)
	adopting := d.folder.HasLive()
	var options ebpf.CollectionOptions
	if adopting {
		options.MapReplacements, err = d.liveMaps(spec)
		defer closeMaps(options.MapReplacements)
		if err != nil {
			return err
		}
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, options)
	if err != nil {
		return describeLoad(err)
	}
	defer collection.Close()
	if !adopting {
		if err := d.publish(collection); err != nil {
			return err
		}
	}
	d.config.Log.Info("data plane loaded", "adopted", adopting, "pins", d.config.PinPath)
	return collection.Assign(&d.objects)
}

func (d *Datapath) size(spec *ebpf.CollectionSpec) {
	spec.Maps["sessions"].MaxEntries = uint32(d.config.MaxSessions)
	for _, name := range []string{"nat_rules", "tunnels", "workloads"} {
		spec.Maps[name].MaxEntries = uint32(d.config.MaxRules)
	}
}

// liveMaps opens what is pinned. That its layout is that of spec is checked when it is used.
func (d *Datapath) liveMaps(spec *ebpf.CollectionSpec) (map[string]*ebpf.Map, error) {
	maps := make(map[string]*ebpf.Map, len(spec.Maps))
	for name := range spec.Maps {
		live, err := ebpf.LoadPinnedMap(d.folder.Live(pinName(name)), nil)
		if err != nil {
			return maps, fmt.Errorf("adopt table %s: %w; %s", pinName(name), err, remedy)
		}
		maps[name] = live
	}
	return maps, nil
}

const remedy = "run `weir-agent unload` to remove the data plane that runs, then start again"

func (d *Datapath) publish(collection *ebpf.Collection) error {
	return d.folder.Publish(func(folder string) error {
		for name, m := range collection.Maps {
			if err := m.Pin(filepath.Join(folder, pinName(name))); err != nil {
				return fmt.Errorf("pin table %s: %w", name, err)
			}
		}
		return nil
	})
}

// pinName is a map's file name: a bpffs allows no dots.
func pinName(mapName string) string { return strings.TrimPrefix(mapName, ".data.") }

func describeLoad(err error) error {
	if errors.Is(err, ebpf.ErrMapIncompatible) {
		return fmt.Errorf("adopt tables: %w; %s", err, remedy)
	}
	return fmt.Errorf("load agent's programs: %w", err)
}

func closeMaps(maps map[string]*ebpf.Map) {
	for _, m := range maps {
		m.Close()
	}
}
