package bpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
)

// ErrLayout is the error for pinned tables of another version or other sizes.
var ErrLayout = errors.New("has another layout or size")

// Tables are the maps of the data plane.
type Tables struct {
	Endpoints      *ebpf.Map `ebpf:"endpoints"`
	EndpointIndex  *ebpf.Map `ebpf:"endpoint_index"`
	EndpointRows   *ebpf.Map `ebpf:"endpoint_rows"`
	Buckets        *ebpf.Map `ebpf:"buckets"`
	Backends       *ebpf.Map `ebpf:"backends"`
	SNATRanges     *ebpf.Map `ebpf:"snat_ranges"`
	SNATOwners     *ebpf.Map `ebpf:"snat_owners"`
	NextHops       *ebpf.Map `ebpf:"next_hops"`
	Flows          *ebpf.Map `ebpf:"flows"`
	FlowFilter     *ebpf.Map `ebpf:".data.flow_filter"`
	FlowsElsewhere *ebpf.Map `ebpf:"flows_elsewhere"`
	VIPUsage       *ebpf.Map `ebpf:"vip_usage"`
	TenantUsage    *ebpf.Map `ebpf:"tenant_usage"`
	Verdicts       *ebpf.Map `ebpf:"verdicts"`
	EndpointCounts *ebpf.Map `ebpf:"endpoint_counts"`
	SYNCounters    *ebpf.Map `ebpf:"syn_counters"`
	Settings       *ebpf.Map `ebpf:".data.settings"`
	SYNSecrets     *ebpf.Map `ebpf:".data.syn"`
	PoolMembers    *ebpf.Map `ebpf:".data.pool_members"`
	RelayHosts     *ebpf.Map `ebpf:"relay_hosts"`
	Neighbors      *ebpf.Map `ebpf:"neighbors"`
	NeighborLease  *ebpf.Map `ebpf:".data.neighbor"`
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
	NetworkVIPs    *ebpf.Map `ebpf:"network_vips"`
	VTEPs          *ebpf.Map `ebpf:"vteps"`
	OverlayHosts   *ebpf.Map `ebpf:"overlay_hosts"`
	HostKeys       *ebpf.Map `ebpf:"host_keys"`
	NetworkCounts  *ebpf.Map `ebpf:"network_counts"`
	Overlay        *ebpf.Map `ebpf:".data.overlay"`
	NAT            *ebpf.Map `ebpf:".data.nat"`
	NATSessions    *ebpf.Map `ebpf:"session_sets"`
	NATTenants     *ebpf.Map `ebpf:"tenants"`
	NATAttachments *ebpf.Map `ebpf:"nat_attachments"`
	NATSlots       *ebpf.Map `ebpf:"nat_slots"`
	NATBackends    *ebpf.Map `ebpf:"nat_backends"`
	NATHosts       *ebpf.Map `ebpf:"nat_hosts"`

	Clock *ebpf.Program `ebpf:"flow_clock"` // tells the ticks of Flows; nil when only inspected

	VerdictNames abi.Verdicts // of the rows of Verdicts
}

// What the library calls the maps of variables.
const (
	settingsMap    = ".data.settings"
	poolMembersMap = ".data.pool_members"
	secretsMap     = ".data.syn"
	overlayMap     = ".data.overlay"
	natMap         = ".data.nat"
	leaseMap       = ".data.neighbor"
	filterMap      = ".data.flow_filter"

	constantsMap = ".rodata"
)

// Objects is what loading gives.
type Objects struct {
	Tables
	Programs
}

// Pinned lists the tables with the names of their pins and in the program's object.
func (t *Tables) Pinned() []PinnedTable {
	return []PinnedTable{
		{"endpoints", MuxMapEndpoints, &t.Endpoints},
		{"endpoint_index", MuxMapEndpointIndex, &t.EndpointIndex},
		{"endpoint_rows", MuxMapEndpointRows, &t.EndpointRows},
		{"buckets", MuxMapBuckets, &t.Buckets},
		{"backends", MuxMapBackends, &t.Backends},
		{"snat_ranges", MuxMapSnatRanges, &t.SNATRanges},
		{"snat_owners", MuxMapSnatOwners, &t.SNATOwners},
		{"next_hops", MuxMapNextHops, &t.NextHops},
		{"flows", MuxMapFlows, &t.Flows},
		{"flow_filter", filterMap, &t.FlowFilter},
		{"flows_elsewhere", MuxMapFlowsElsewhere, &t.FlowsElsewhere},
		{"vip_usage", MuxMapVipUsage, &t.VIPUsage},
		{"tenant_usage", MuxMapTenantUsage, &t.TenantUsage},
		{"verdicts", MuxMapVerdicts, &t.Verdicts},
		{"endpoint_counts", MuxMapEndpointCounts, &t.EndpointCounts},
		{"syn_counters", MuxMapSynCounters, &t.SYNCounters},
		{"settings", settingsMap, &t.Settings},
		{"syn_secrets", secretsMap, &t.SYNSecrets},
		{"pool_members", poolMembersMap, &t.PoolMembers},
		{"relay_hosts", MuxMapRelayHosts, &t.RelayHosts},
		{"neighbors", MuxMapNeighbors, &t.Neighbors},
		{"neighbor_lease", leaseMap, &t.NeighborLease},
		{"fragments", MuxMapFragments, &t.Fragments},
		{"lost_datagrams", MuxMapLostDatagrams, &t.LostDatagrams},
		{"punts", MuxMapPunts, &t.Punts},
		{"redirects", MuxMapRedirects, &t.Redirects},
		{"acls", MuxMapAcls, &t.ACLs},
		{"sources", MuxMapSources, &t.Sources},
		{"source_sets", MuxMapSourceSets, &t.SourceSets},
		{"source_names", MuxMapSourceNames, &t.SourceNames},
		{"vip_policers", MuxMapVipPolicers, &t.VIPPolicers},
		{"vip_drops", MuxMapVipDrops, &t.VIPDrops},
		{"heavy_hitters", MuxMapHeavyHitters, &t.HeavyHitters},
		{"source_shares", MuxMapSourceShares, &t.SourceShares},
		{"network_vips", MuxMapNetworkVips, &t.NetworkVIPs},
		{"vteps", MuxMapVteps, &t.VTEPs},
		{"overlay_hosts", MuxMapOverlayHosts, &t.OverlayHosts},
		{"host_keys", MuxMapHostKeys, &t.HostKeys},
		{"network_counts", MuxMapNetworkCounts, &t.NetworkCounts},
		{"overlay", overlayMap, &t.Overlay},
		{"nat", natMap, &t.NAT},
		{"session_sets", MuxMapSessionSets, &t.NATSessions},
		{"tenants", MuxMapTenants, &t.NATTenants},
		{"nat_attachments", MuxMapNatAttachments, &t.NATAttachments},
		{"nat_slots", MuxMapNatSlots, &t.NATSlots},
		{"nat_backends", MuxMapNatBackends, &t.NATBackends},
		{"nat_hosts", MuxMapNatHosts, &t.NATHosts},
	}
}

// PinnedTable is a map with the names of its pin and in the object.
type PinnedTable struct {
	Pin, Object string
	Handle      **ebpf.Map
}

// Close lets go of all of them.
func (t *Tables) Close() error {
	errs := []error{t.Clock.Close()}
	for _, table := range t.Pinned() {
		errs = append(errs, (*table.Handle).Close())
	}
	return errors.Join(errs...)
}

// Pin pins all of them in a folder.
func (t *Tables) Pin(dir string) error {
	for _, table := range t.Pinned() {
		if err := (*table.Handle).Pin(filepath.Join(dir, table.Pin)); err != nil {
			return fmt.Errorf("pin table %s: %w", table.Pin, err)
		}
	}
	return nil
}

// OpenTables opens the pinned tables of dir. It refuses those of another layout than spec has, and, if
// sized, of another size.
func OpenTables(dir string, spec *ebpf.CollectionSpec, sized bool, options ebpf.LoadPinOptions) (t Tables, err error) {
	defer func() {
		if err != nil {
			_ = t.Close()
		}
	}()
	for _, table := range t.Pinned() {
		m, err := ebpf.LoadPinnedMap(filepath.Join(dir, table.Pin), &options)
		if errors.Is(err, os.ErrNotExist) {
			return t, fmt.Errorf("open table %s: %w: %w", table.Pin, ErrLayout, err)
		}
		if err != nil {
			return t, fmt.Errorf("open table %s: %w", table.Pin, err)
		}
		*table.Handle = m
		err = abi.SameLayout(spec.Maps[table.Object], m)
		if err == nil && sized {
			err = spec.Maps[table.Object].Compatible(m)
		}
		if err != nil {
			return t, fmt.Errorf("open table %s: %w: %w", table.Pin, ErrLayout, err)
		}
	}
	return t, nil
}

// Load makes the program, with new tables or those given.
func Load(spec *ebpf.CollectionSpec, reuse *Tables) (*Objects, error) {
	var o Objects
	if err := loadInto(&o, spec, reuse); err != nil {
		return nil, fmt.Errorf("load mux program: %w", err)
	}
	var err error
	if o.VerdictNames, err = abi.VerdictsOf(spec); err != nil {
		return nil, errors.Join(err, o.Tables.Close(), o.Programs.Close())
	}
	return &o, nil
}

// LoadTables opens the tables given once more, with what reads them beside the program.
func LoadTables(spec *ebpf.CollectionSpec, reuse *Tables) (t Tables, err error) {
	if err := loadInto(&t, spec, reuse); err != nil {
		return t, fmt.Errorf("load the flow table's clock: %w", err)
	}
	if t.VerdictNames, err = abi.VerdictsOf(spec); err != nil {
		return t, errors.Join(err, t.Close())
	}
	return t, nil
}

// loadInto loads what the struct at o names, with new tables or those given.
func loadInto(o any, spec *ebpf.CollectionSpec, reuse *Tables) error {
	options := ebpf.CollectionOptions{}
	if reuse != nil {
		options.MapReplacements = map[string]*ebpf.Map{}
		for _, table := range reuse.Pinned() {
			options.MapReplacements[table.Object] = *table.Handle
		}
	}
	return spec.LoadAndAssign(o, &options)
}
