package mux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
)

// tables are the maps of the data plane.
type tables struct {
	Endpoints      *ebpf.Map `ebpf:"endpoints"`
	Shortcuts      *ebpf.Map `ebpf:"shortcuts"`
	EndpointRows   *ebpf.Map `ebpf:"endpoint_rows"`
	Buckets        *ebpf.Map `ebpf:"buckets"`
	Backends       *ebpf.Map `ebpf:"backends"`
	SNATRanges     *ebpf.Map `ebpf:"snat_ranges"`
	SNATOwners     *ebpf.Map `ebpf:"snat_owners"`
	NextHops       *ebpf.Map `ebpf:"next_hops"`
	Flows          *ebpf.Map `ebpf:"flows"`
	VIPUsage       *ebpf.Map `ebpf:"vip_usage"`
	TenantUsage    *ebpf.Map `ebpf:"tenant_usage"`
	Verdicts       *ebpf.Map `ebpf:"verdicts"`
	EndpointCounts *ebpf.Map `ebpf:"endpoint_counts"`
	SYNCounters    *ebpf.Map `ebpf:"syn_counters"`
	Pool           *ebpf.Map `ebpf:".data.pool"`
	SYNSecrets     *ebpf.Map `ebpf:".data.syn"`
	Members        *ebpf.Map `ebpf:".data.members"`
	Fragments      *ebpf.Map `ebpf:"fragments"`
	LostDatagrams  *ebpf.Map `ebpf:"lost_datagrams"`
	Punts          *ebpf.Map `ebpf:"punts"`
	Redirects      *ebpf.Map `ebpf:"redirects"`
	ACLs           *ebpf.Map `ebpf:"acls"`
	Sources        *ebpf.Map `ebpf:"sources"`
	SourceSets     *ebpf.Map `ebpf:"source_sets"`
	SourceNames    *ebpf.Map `ebpf:"source_names"`
	VIPPolicers    *ebpf.Map `ebpf:"vip_policers"`
	VIPDrops       *ebpf.Map `ebpf:"vip_drops"`
	HeavyHitters   *ebpf.Map `ebpf:"heavy_hitters"`
	SourceShares   *ebpf.Map `ebpf:"source_shares"`

	Clock *ebpf.Program `ebpf:"flow_clock"` // tells the ticks of Flows; nil when only inspected

	names abi.Verdicts // of the rows of Verdicts
}

// What the library calls the maps of the variables pool, members and syn_secrets.
const (
	poolMap    = ".data.pool"
	membersMap = ".data.members"
	secretsMap = ".data.syn"

	constantsMap = ".rodata"
)

// objects is what loading gives.
type objects struct {
	tables
	programs
}

// pinned lists the tables with the names of their pins and in the program's object.
func (t *tables) pinned() []pinnedTable {
	return []pinnedTable{
		{"endpoints", muxMapEndpoints, &t.Endpoints},
		{"shortcuts", muxMapShortcuts, &t.Shortcuts},
		{"endpoint_rows", muxMapEndpointRows, &t.EndpointRows},
		{"buckets", muxMapBuckets, &t.Buckets},
		{"backends", muxMapBackends, &t.Backends},
		{"snat_ranges", muxMapSnatRanges, &t.SNATRanges},
		{"snat_owners", muxMapSnatOwners, &t.SNATOwners},
		{"next_hops", muxMapNextHops, &t.NextHops},
		{"flows", muxMapFlows, &t.Flows},
		{"vip_usage", muxMapVipUsage, &t.VIPUsage},
		{"tenant_usage", muxMapTenantUsage, &t.TenantUsage},
		{"verdicts", muxMapVerdicts, &t.Verdicts},
		{"endpoint_counts", muxMapEndpointCounts, &t.EndpointCounts},
		{"syn_counters", muxMapSynCounters, &t.SYNCounters},
		{"pool", poolMap, &t.Pool},
		{"syn_secrets", secretsMap, &t.SYNSecrets},
		{"members", membersMap, &t.Members},
		{"fragments", muxMapFragments, &t.Fragments},
		{"lost_datagrams", muxMapLostDatagrams, &t.LostDatagrams},
		{"punts", muxMapPunts, &t.Punts},
		{"redirects", muxMapRedirects, &t.Redirects},
		{"acls", muxMapAcls, &t.ACLs},
		{"sources", muxMapSources, &t.Sources},
		{"source_sets", muxMapSourceSets, &t.SourceSets},
		{"source_names", muxMapSourceNames, &t.SourceNames},
		{"vip_policers", muxMapVipPolicers, &t.VIPPolicers},
		{"vip_drops", muxMapVipDrops, &t.VIPDrops},
		{"heavy_hitters", muxMapHeavyHitters, &t.HeavyHitters},
		{"source_shares", muxMapSourceShares, &t.SourceShares},
	}
}

type pinnedTable struct {
	pin, object string
	handle      **ebpf.Map
}

func (t *tables) Close() error {
	errs := []error{t.Clock.Close()}
	for _, table := range t.pinned() {
		errs = append(errs, (*table.handle).Close())
	}
	return errors.Join(errs...)
}

func (t *tables) pin(dir string) error {
	for _, table := range t.pinned() {
		if err := (*table.handle).Pin(filepath.Join(dir, table.pin)); err != nil {
			return fmt.Errorf("pin table %s: %w", table.pin, err)
		}
	}
	return nil
}

// openTables opens the pinned tables of dir. It refuses those of another layout than spec has, and, if
// sized, of another size.
func openTables(dir string, spec *ebpf.CollectionSpec, sized bool, options ebpf.LoadPinOptions) (t tables, err error) {
	defer func() {
		if err != nil {
			_ = t.Close()
		}
	}()
	for _, table := range t.pinned() {
		m, err := ebpf.LoadPinnedMap(filepath.Join(dir, table.pin), &options)
		if errors.Is(err, os.ErrNotExist) {
			return t, fmt.Errorf("open table %s: %w: %w", table.pin, errLayout, err)
		}
		if err != nil {
			return t, fmt.Errorf("open table %s: %w", table.pin, err)
		}
		*table.handle = m
		err = abi.SameLayout(spec.Maps[table.object], m)
		if err == nil && sized {
			err = spec.Maps[table.object].Compatible(m)
		}
		if err != nil {
			return t, fmt.Errorf("open table %s: %w: %w", table.pin, errLayout, err)
		}
	}
	return t, nil
}

// load makes the program, with new tables or those given.
func load(spec *ebpf.CollectionSpec, reuse *tables) (*objects, error) {
	var o objects
	if err := loadInto(&o, spec, reuse); err != nil {
		return nil, fmt.Errorf("load mux program: %w", err)
	}
	var err error
	if o.names, err = abi.VerdictsOf(spec); err != nil {
		return nil, errors.Join(err, o.tables.Close(), o.programs.Close())
	}
	return &o, nil
}

// loadTables opens the tables given once more, with what reads them beside the program.
func loadTables(spec *ebpf.CollectionSpec, reuse *tables) (t tables, err error) {
	if err := loadInto(&t, spec, reuse); err != nil {
		return t, fmt.Errorf("load the flow table's clock: %w", err)
	}
	if t.names, err = abi.VerdictsOf(spec); err != nil {
		return t, errors.Join(err, t.Close())
	}
	return t, nil
}

// loadInto loads what the struct at o names, with new tables or those given.
func loadInto(o any, spec *ebpf.CollectionSpec, reuse *tables) error {
	options := ebpf.CollectionOptions{}
	if reuse != nil {
		options.MapReplacements = map[string]*ebpf.Map{}
		for _, table := range reuse.pinned() {
			options.MapReplacements[table.object] = *table.handle
		}
	}
	return spec.LoadAndAssign(o, &options)
}
