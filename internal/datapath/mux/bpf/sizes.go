package bpf

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Defaults of sizes.
const (
	defaultSources     = 1 << 20
	defaultAttachments = 16384
	defaultVTEPs       = 65536
	defaultHosts       = 4096
	defaultNATBackends = 65535 // sessions have 16 bits for them
	defaultNATTenants  = 4097  // row 0 is what all borrow
)

// Sizes are the tables' sizes in rows.
type Sizes struct {
	Endpoints, BucketRows, Backends, FlowSets uint32
	SNATVIPs                                  uint32
	Sources                                   uint32        // 0: the default
	Attachments                               uint32        // VIPs of virtual networks; 0: the default
	VTEPs                                     uint32        // hosts of clients; 0: the default
	Hosts                                     uint32        // numbers of hosts with backends, from 1 on; 0: the default
	NATSets                                   uint32        // of 16 sessions of full NAT, a power of two; 0: there is none, and its tables have a row
	FlowLimit                                 uint32        // 0: half of MaxFlows
	Tokens                                    []uint64      // of the buckets of bpf/mux/ratelimit.h; nil: those that stand there
	TokenTime                                 time.Duration // until one comes back; 0: likewise
	FragmentLife                              time.Duration // 0: what stands in bpf/net/datagram.h
}

// PowerOfTwo is the smallest that is not below n, and at least 1.
func PowerOfTwo(n int) uint32 {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// Rows are those with ids: of endpoints, and of VIPs with source NAT.
func (d Sizes) Rows() uint32 { return d.Endpoints + d.SNATVIPs }

// SourceRows are those that all lists of sources may have.
func (d Sizes) SourceRows() uint32 { return cmp.Or(d.Sources, defaultSources) }

// AttachmentRows are those that VIPs of virtual networks may have; row 0 is not used.
func (d Sizes) AttachmentRows() uint32 { return cmp.Or(d.Attachments, defaultAttachments) + 1 }

// HostRows are those of keys of hosts, by number; row 0 is not used.
func (d Sizes) HostRows() uint32 { return cmp.Or(d.Hosts, defaultHosts) + 1 }

// NATBackends are those that sessions of full NAT may have, from 1 on.
func (d Sizes) NATBackends() uint32 { return d.withNAT(defaultNATBackends) }

func (d Sizes) natSets() uint32 { return max(d.NATSets, 1) }

// withNAT is how many rows a table of full NAT has that has n where there is full NAT.
func (d Sizes) withNAT(n uint32) uint32 {
	if d.NATSets == 0 {
		return 1
	}
	return n
}

// indexRows are the rows of endpoint_index: four words for each endpoint, so that one endpoint in five collides.
func (d Sizes) indexRows() uint32 {
	return PowerOfTwo((int(d.Endpoints)*4 + IndexPerRow - 1) / IndexPerRow)
}

// SNATOwnerRows are the tunnels that workloads with ranges can have: one in 16 ranges.
func (d Sizes) SNATOwnerRows() uint32 { return d.SNATVIPs * uint32(SNATRanges/16) }

// Spec is the program and its tables with their sizes and knobs set.
func (d Sizes) Spec() (*ebpf.CollectionSpec, error) {
	spec, err := LoadMux()
	if err != nil {
		return nil, fmt.Errorf("read mux program: %w", err)
	}
	for table, rows := range map[string]uint32{
		MuxMapEndpoints:      2 * d.Rows(), // each may bring the row of a VIP
		MuxMapEndpointIndex:  d.indexRows(),
		MuxMapEndpointRows:   d.Rows() + 1,
		MuxMapVipUsage:       d.Rows() + 1,
		MuxMapTenantUsage:    d.Rows() + 1,
		MuxMapFlowsElsewhere: d.Rows() + 1,
		MuxMapEndpointCounts: d.Rows() + 1,
		MuxMapJoinTats:       d.Rows() + 1,
		MuxMapAcls:           d.Rows() + 1,
		MuxMapVipPolicers:    d.Rows() + 1,
		MuxMapVipDrops:       d.Rows() + 1,
		MuxMapVipTokens:      d.Rows() + 1,
		MuxMapSources:        d.SourceRows(),
		MuxMapSourceSets:     SourceSetRows*d.Rows() + 1,
		MuxMapSynCounters:    d.Rows() + 1,
		MuxMapBuckets:        d.BucketRows,
		MuxMapBackends:       d.Backends,
		MuxMapFlows:          d.FlowSets,
		MuxMapSnatRanges:     max(d.SNATVIPs, 1) * uint32(SNATRanges/SNATRowRanges),
		MuxMapSnatOwners:     d.SNATOwnerRows() + 1,
		MuxMapNetworkVips:    d.AttachmentRows() - 1,
		MuxMapNetworkCounts:  d.AttachmentRows(),
		MuxMapVteps:          cmp.Or(d.VTEPs, defaultVTEPs),
		MuxMapOverlayHosts:   d.HostRows(),
		MuxMapHostKeys:       d.HostRows(),
		MuxMapSessionSets:    d.natSets(),
		MuxMapNatAttachments: d.withNAT(d.AttachmentRows()),
		MuxMapNatSlots:       d.NATBackends(),
		MuxMapNatBackends:    d.NATBackends() + 1,
		MuxMapNatHosts:       d.withNAT(d.HostRows()),
		MuxMapTenants:        d.withNAT(defaultNATTenants),
	} {
		spec.Maps[table].MaxEntries = rows
	}
	// The library adds the flag while it makes the map; adoption compares it before.
	spec.Maps[settingsMap].Flags |= unix.BPF_F_MMAPABLE
	spec.Maps[poolMembersMap].Flags |= unix.BPF_F_MMAPABLE
	spec.Maps[secretsMap].Flags |= unix.BPF_F_MMAPABLE
	spec.Maps[overlayMap].Flags |= unix.BPF_F_MMAPABLE
	spec.Maps[natMap].Flags |= unix.BPF_F_MMAPABLE
	spec.Maps[leaseMap].Flags |= unix.BPF_F_MMAPABLE
	spec.Maps[filterMap].Flags |= unix.BPF_F_MMAPABLE
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
func (d Sizes) knobs() (map[string]any, error) {
	tick, err := FlowTick()
	if err != nil {
		return nil, err
	}
	knobs := map[string]any{
		MuxVarCfgEndpointIndexMask:  d.indexRows()*uint32(IndexPerRow) - 1,
		MuxVarCfgFlowSetMask:        d.FlowSets - 1,
		MuxVarCfgNatSetMask:         d.natSets() - 1,
		MuxVarCfgFlowUntrustedTicks: uint32(UntrustedIdle / tick),
		MuxVarCfgFlowEpochShift:     FlowEpochShift(tick),
	}
	if d.Tokens != nil {
		knobs[MuxVarCfgRatelimitBurst] = d.Tokens
	}
	if d.TokenTime != 0 {
		knobs[MuxVarCfgRatelimitInterval] = slices.Repeat([]uint64{uint64(d.TokenTime)}, len(d.Tokens))
	}
	if d.FragmentLife != 0 {
		knobs[MuxVarCfgDatagramLife] = uint32(min(d.FragmentLife/DatagramTick, DatagramLong))
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
	spec.Programs[MuxProgMux].Name = fmt.Sprintf("%s_%.10s", MuxProgMux, hex.EncodeToString(hash.Sum(nil)))
}

// UseObject has Spec read another object than the one that is built in: test/mutate has some with a fault.
func UseObject(object []byte) { _MuxBytes = object }
