package agent

import (
	"crypto/rand"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/migration"
	"github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/flowhash"
)

// load brings maps and programs into the kernel: the live maps if there are any, migrated if they
// are of another version or size; the programs always this binary's own.
func (d *Datapath) load() error {
	if err := probeChecksumHelper(); err != nil {
		return err
	}
	spec, err := bpf.LoadAgent()
	if err != nil {
		return fmt.Errorf("read agent's programs: %w", err)
	}
	if d.verdicts, err = abi.VerdictsOf(spec); err != nil {
		return err
	}
	d.size(spec)
	if err := drawHashKey(spec); err != nil {
		return err
	}
	if d.folder.HasLive() {
		return d.adopt(spec)
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		return fmt.Errorf("load agent's programs: %w", err)
	}
	defer collection.Close()
	if err := d.folder.Publish(func(folder string) error { return migration.PinTables(folder, collection) }); err != nil {
		return err
	}
	d.config.Log.Info("data plane loaded", "adopted", false, "pins", d.config.PinPath)
	return collection.Assign(&d.objects)
}

// adopt goes on with what is live.
func (d *Datapath) adopt(spec *ebpf.CollectionSpec) error {
	m, err := migration.New(d.folder, spec)
	if err != nil {
		return fmt.Errorf("%w; %s", err, remedy)
	}
	defer m.Close()
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: m.Unchanged()})
	if err != nil {
		return fmt.Errorf("load agent's programs: %w", err)
	}
	defer collection.Close()
	if len(m.Changed)+len(m.Missing) > 0 {
		if err := m.Run(collection); err != nil {
			return fmt.Errorf("%w; %s", err, remedy)
		}
		d.config.Log.Info("tables of another version or size migrated", "changed", m.Changed, "added", m.Missing)
	}
	d.config.Log.Info("data plane loaded", "adopted", true, "pins", d.config.PinPath)
	return collection.Assign(&d.objects)
}

func (d *Datapath) size(spec *ebpf.CollectionSpec) {
	spec.Maps["sessions"].MaxEntries = uint32(d.config.MaxSessions)
	spec.Maps["new_sessions"].MaxEntries = uint32(max(d.config.MaxSessions/newShare, minNew))
	for _, name := range []string{"session_usages", "session_quotas"} {
		spec.Maps[name].MaxEntries = uint32(d.config.MaxRules + 1)
	}
	for _, name := range []string{"nat_rules", "tunnels", "workloads", "workload_links"} {
		spec.Maps[name].MaxEntries = uint32(d.config.MaxRules)
	}
	spec.Maps["vip_tenants"].MaxEntries = uint32(d.config.MaxRules + snat.MaxWorkloads)
	spec.Maps["snat_tenants"].MaxEntries = uint32(d.config.MaxRules + snat.MaxWorkloads + 1)
	for _, name := range []string{"snat_flows", "snat_dests"} {
		spec.Maps[name].MaxEntries = uint32(d.config.MaxSNATFlows)
	}
	for _, name := range []string{"snat_ports", "snat_block_use"} {
		spec.Maps[name].MaxEntries = uint32(2 * d.config.MaxSNATFlows)
	}
	// The library adds the flag while it makes the map; adoption compares it before.
	for _, name := range []string{".data.settings", ".data.secrets", ".data.hash_key", ".data.pool_key", ".data.ping_tat", ".data.relay_tat"} {
		spec.Maps[name].Flags |= unix.BPF_F_MMAPABLE
	}
}

// drawHashKey makes the key that a new table of it begins with; one that is live stays as it is.
func drawHashKey(spec *ebpf.CollectionSpec) error {
	key := make([]byte, flowhash.KeySize)
	_, _ = rand.Read(key) // never fails
	if err := spec.Variables[bpf.AgentVarHashKey].Set(key); err != nil {
		return fmt.Errorf("set hash_key: %w", err)
	}
	return nil
}

// Sessions of one side alone have so much room beside the others.
const (
	newShare = 4
	minNew   = 1 << 10
)

const remedy = "run `weir-agent unload` to remove the data plane that runs, then start again"
