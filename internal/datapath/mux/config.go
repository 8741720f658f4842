package mux

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Mode is how the program is attached to the interface.
type Mode string

// The modes of XDP.
const (
	Auto    Mode = "auto"    // native if the driver has it, else generic
	Native  Mode = "native"  // in the driver
	Generic Mode = "generic" // in the kernel's stack: slow, for drivers without XDP
)

// Config says how to open a data plane. Sizes are rounded up to powers of two where the tables
// need it; 0 means the default.
type Config struct {
	Interface    string
	PinPath      string // folder on a bpffs, this data plane's alone
	Mode         Mode   // "" is Auto
	MaxEndpoints int    // default 16 384
	MaxBuckets   int    // of all endpoints together, twice over while one is replaced; default 8 388 608
	MaxBackends  int    // likewise; an endpoint takes its highest slot, rounded up; default 262 144
	MaxSNATPorts int    // of all VIPs with source NAT together, 65 536 each; default 4 194 304
	MaxFlows     int    // flows that are remembered without much loss; default 1 048 576
	MaxSources   int    // prefixes of all lists of sources together, twice over while one is replaced; default 1 048 576
	MaxVIPFlows  int    // of one VIP that does not say itself; default half of MaxFlows
	Log          *slog.Logger
}

const (
	defaultEndpoints = 16384
	defaultBuckets   = 8 << 20
	defaultBackends  = 256 << 10
	defaultSNATPorts = 4 << 20
	defaultFlows     = 1 << 20
	defaultSources   = 1 << 20
)

// dimensions are the tables' sizes in rows.
type dimensions struct {
	endpoints, bucketRows, backends, flowSets uint32
	snatVIPs                                  uint32
	sources                                   uint32        // 0: the default
	flowLimit                                 uint32        // 0: half of MaxFlows
	tokens                                    []uint64      // of the buckets of bpf/mux/ratelimit.h; nil: those that stand there
	tokenTime                                 time.Duration // until one comes back; 0: likewise
	fragmentLife                              time.Duration // 0: what stands in bpf/net/datagram.h
}

func (c Config) dimensions() (dimensions, error) {
	d := dimensions{
		endpoints:  uint32(orDefault(c.MaxEndpoints, defaultEndpoints)),
		bucketRows: powerOfTwo(orDefault(c.MaxBuckets, defaultBuckets) / rowBuckets),
		backends:   powerOfTwo(orDefault(c.MaxBackends, defaultBackends)),
		snatVIPs:   uint32((orDefault(c.MaxSNATPorts, defaultSNATPorts) + 65535) / 65536),
		// Twice the cells: then only 2 % of the flows find their set full.
		flowSets: powerOfTwo(2 * orDefault(c.MaxFlows, defaultFlows) / len(muxFlowSet{}.Cells)),
	}
	d.flowLimit = uint32(max(c.MaxVIPFlows, 0))
	d.sources = uint32(max(c.MaxSources, 0))
	if d.bucketRows > 1<<bucketBitsShift || d.backends > 1<<(slotBitsShift-firstBackendShift) {
		return d, fmt.Errorf("tables of %d buckets and %d backends are too large",
			c.MaxBuckets, c.MaxBackends)
	}
	return d, nil
}

func orDefault(n, fallback int) int {
	if n <= 0 {
		return fallback
	}
	return n
}

// powerOfTwo is the smallest that is not below n, and at least 1.
func powerOfTwo(n int) uint32 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// rows are those with ids: of endpoints, and of VIPs with source NAT.
func (d dimensions) rows() uint32 { return d.endpoints + d.snatVIPs }

// sourceRows are those that all lists of sources may have.
func (d dimensions) sourceRows() uint32 { return uint32(orDefault(int(d.sources), defaultSources)) }

// shortcutRows hold four shortcuts for each endpoint: so one in five shares its own with another.
func (d dimensions) shortcutRows() uint32 {
	return powerOfTwo((int(d.endpoints)*4 + shortcutsPerRow - 1) / shortcutsPerRow)
}

// snatOwnerRows are the tunnels that workloads with ranges can have: one in 16 ranges.
func (d dimensions) snatOwnerRows() uint32 { return d.snatVIPs * uint32(snatRanges/16) }

// spec is the program and its tables with their sizes and knobs set.
func (d dimensions) spec() (*ebpf.CollectionSpec, error) {
	spec, err := loadMux()
	if err != nil {
		return nil, fmt.Errorf("read mux program: %w", err)
	}
	for table, rows := range map[string]uint32{
		muxMapEndpoints:      2 * d.rows(), // each may bring the row of a VIP
		muxMapShortcuts:      d.shortcutRows(),
		muxMapEndpointRows:   d.rows() + 1,
		muxMapVipUsage:       d.rows() + 1,
		muxMapTenantUsage:    d.rows() + 1,
		muxMapEndpointCounts: d.rows() + 1,
		muxMapAcls:           d.rows() + 1,
		muxMapVipPolicers:    d.rows() + 1,
		muxMapVipDrops:       d.rows() + 1,
		muxMapVipTokens:      d.rows() + 1,
		muxMapSources:        d.sourceRows(),
		muxMapSourceSets:     sourceSetRows*d.rows() + 1,
		muxMapSynCounters:    d.rows() + 1,
		muxMapBuckets:        d.bucketRows,
		muxMapBackends:       d.backends,
		muxMapFlows:          d.flowSets,
		muxMapSnatRanges:     max(d.snatVIPs, 1) * uint32(snatRanges/snatRowRanges),
		muxMapSnatOwners:     d.snatOwnerRows() + 1,
	} {
		spec.Maps[table].MaxEntries = rows
	}
	// The library adds the flag while it makes the map; adoption compares it before.
	spec.Maps[poolMap].Flags |= unix.BPF_F_MMAPABLE
	spec.Maps[membersMap].Flags |= unix.BPF_F_MMAPABLE
	spec.Maps[secretsMap].Flags |= unix.BPF_F_MMAPABLE
	knobs, err := d.knobs()
	if err != nil {
		return nil, err
	}
	for knob, value := range knobs {
		if err := spec.Variables[knob].Set(value); err != nil {
			return nil, fmt.Errorf("set %s: %w", knob, err)
		}
	}
	name(spec)
	return spec, nil
}

// knobs are the program's constants that are not as they stand there.
func (d dimensions) knobs() (map[string]any, error) {
	tick, err := flowTick()
	if err != nil {
		return nil, err
	}
	knobs := map[string]any{
		muxVarCfgShortcutMask:       d.shortcutRows()*uint32(shortcutsPerRow) - 1,
		muxVarCfgFlowSetMask:        d.flowSets - 1,
		muxVarCfgFlowUntrustedTicks: uint32(untrustedIdle / tick),
	}
	if d.tokens != nil {
		knobs[muxVarCfgRatelimitBurst] = d.tokens
	}
	if d.tokenTime != 0 {
		knobs[muxVarCfgRatelimitInterval] = slices.Repeat([]uint64{uint64(d.tokenTime)}, len(d.tokens))
	}
	if d.fragmentLife != 0 {
		knobs[muxVarCfgDatagramLife] = uint32(min(d.fragmentLife/datagramTick, datagramLong))
	}
	return knobs, nil
}

// name tells the program from others by its name, as far as a kernel takes one: by a hash of the object
// and of the constants that are set. So a successor knows its own program without loading it, which
// takes the verifier up to seconds. A name of all 15 bytes that a kernel has would count as cut off.
func name(spec *ebpf.CollectionSpec) {
	hash := sha256.New()
	hash.Write(_MuxBytes)
	for _, variable := range slices.Sorted(maps.Keys(spec.Variables)) {
		if v := spec.Variables[variable]; v.SectionName == constantsMap {
			hash.Write(v.Value)
		}
	}
	spec.Programs[muxProgMux].Name = fmt.Sprintf("%s_%.10s", muxProgMux, hex.EncodeToString(hash.Sum(nil)))
}
