package wire

import (
	"errors"
	"fmt"
	"net/netip"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/backlog"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/snat"
)

// MuxUpdate is one step of a mux's tables.
type MuxUpdate struct {
	Generation model.Generation // that the step leads to
	Snapshot   bool             // these are all endpoints
	Endpoints  []model.MuxEndpoint
	Removed    []model.EndpointKey
	HashKey    flowhash.Key       // only in a snapshot
	Pool       []model.PoolMember // all muxes of the pool that are connected, by name, every time
	Withdraw   bool               // the mux is out of the pool: announce nothing
	// SNAT is what workloads that leave as VIPs have, new or changed; in a snapshot these are all.
	SNAT        []model.MuxSNAT
	SNATRemoved []model.SNATKey
	// SNATBefore are lists that the mux was told of some of SNAT: of these it is sent what differs.
	SNATBefore map[model.SNATKey]snat.List
	// KeepSNAT says that what the mux has of SNAT stays, while a restore is pending: SNAT adds what is nobody's.
	KeepSNAT bool
	// Keys are all that are valid, the oldest, which signs, first; every time.
	Keys []model.FastpathKey
	// SYNSecrets are all that are valid, the oldest first; every time.
	SYNSecrets []model.SYNSecret
	// Routes are of the VIPs that are not announced as usual, by address: all of them, every time.
	Routes []model.VIPRoute
	// Lists are the prefix lists that endpoints name, new or changed; in a snapshot these are all. Their chunks that the
	// mux has not are in the message, or were in those before it.
	Lists        []model.MuxPrefixList
	ListsRemoved []string
	Chunks       []*model.PrefixChunk
	Networks     MuxNetworks
	// Backlogs are the endpoints whose SYNs are to be answered as a backend's backlog is full: all of them, every time.
	Backlogs []backlog.Endpoint
}

// HostUpdate is one step of a host's tables.
type HostUpdate struct {
	Generation model.Generation // that the step leads to
	Cluster    uint64           // that counts generations
	Snapshot   bool             // these are all backends
	Backends   []model.HostBackend
	Removed    []model.HostBackendKey
	Muxes      []netip.Prefix // outer sources to accept: all of them, every time
	HashKey    flowhash.Key   // zero: the host needs none, or has it
	// SNAT is what the host's workloads have, new or changed. It comes when the muxes have it, so that it
	// has a snapshot of its own.
	SNAT         []model.HostSNAT
	SNATRemoved  []model.SNATKey
	SNATSnapshot bool // these are all of SNAT
	// SNATBefore is as in MuxUpdate.
	SNATBefore map[model.SNATKey]snat.List
	TellRanges bool // reports are to name the ranges that workloads have
	// Keys and SYNSecrets are as in MuxUpdate, of a host that needs them.
	Keys       []model.FastpathKey
	SYNSecrets []model.SYNSecret
	Networks   HostNetworks
	// Steering is what changes of VIPs that switches hold; in a snapshot these are all.
	Steering steering.Update
}

// MuxUpdateToProto writes u.
func MuxUpdateToProto(u MuxUpdate) *weirv1.SyncMuxResponse {
	p := &weirv1.SyncMuxResponse{
		Withdraw: u.Withdraw, Generation: uint64(u.Generation), Snapshot: u.Snapshot, FastpathKeys: keysToProto(u.Keys), KeepSnat: u.KeepSNAT,
	}
	p.SynSecrets = synSecretsToProto(u.SYNSecrets)
	p.Routes = routesToProto(u.Routes)
	if u.Snapshot {
		p.HashKey = u.HashKey[:]
	}
	for _, e := range u.Endpoints {
		p.Endpoints = append(p.Endpoints, MuxEndpointToProto(e))
	}
	for _, k := range u.Removed {
		p.Removed = append(p.Removed, EndpointKeyToProto(k))
	}
	p.Pool = PoolToProto(u.Pool)
	for _, s := range u.SNAT {
		told := MuxSNATToProto(s)
		told.Ranges, told.Delta = rangesOrDelta(snat.List{Written: s.Written, Ranges: s.Ranges}, u.SNATBefore[s.Key])
		p.Snat = append(p.Snat, told)
	}
	p.SnatRemoved = snatKeysToProto(u.SNATRemoved)
	p.PrefixLists, p.PrefixListsRemoved, p.PrefixChunks = muxListsToProto(u.Lists), u.ListsRemoved, ChunksToProto(u.Chunks)
	p.Networks = muxNetworksToProto(u.Networks)
	p.Backlogs = BacklogsToProto(u.Backlogs)
	return p
}

// PoolToProto writes the muxes of the pool.
func PoolToProto(pool []model.PoolMember) []*weirv1.PoolMember {
	var all []*weirv1.PoolMember
	for _, m := range pool {
		all = append(all, &weirv1.PoolMember{Name: m.Name, Addresses: sourceStrings(m.Addresses, m.Prefixes)})
	}
	return all
}

// MuxUpdateFromProto reads what MuxUpdateToProto wrote, when PortLists has completed it. The chunks of prefix lists are those of the mux.
func MuxUpdateFromProto(p *weirv1.SyncMuxResponse, chunks *PrefixChunks) (MuxUpdate, error) {
	u := MuxUpdate{
		Withdraw: p.GetWithdraw(), Generation: model.Generation(p.GetGeneration()), Snapshot: p.GetSnapshot(), KeepSNAT: p.GetKeepSnat(),
	}
	var errs []error
	if u.Snapshot {
		key, err := flowhash.NewKey(p.GetHashKey())
		u.HashKey = key
		errs = append(errs, err)
	}
	for i, e := range p.GetEndpoints() {
		endpoint, err := MuxEndpointFromProto(e)
		u.Endpoints = append(u.Endpoints, endpoint)
		errs = append(errs, compile.Below(fmt.Sprintf("endpoints[%d]", i), err))
	}
	for i, k := range p.GetRemoved() {
		key, err := EndpointKeyFromProto(k)
		u.Removed = append(u.Removed, key)
		errs = append(errs, compile.Below(fmt.Sprintf("removed[%d]", i), err))
	}
	for i, m := range p.GetPool() {
		var f fields
		member := model.PoolMember{Name: f.name("name", m.GetName())}
		member.Addresses, member.Prefixes = f.sources("addresses", m.GetAddresses())
		u.Pool = append(u.Pool, member)
		errs = append(errs, compile.Below(fmt.Sprintf("pool[%d]", i), f.Err()))
	}
	for i, s := range p.GetSnat() {
		snat, err := MuxSNATFromProto(s)
		u.SNAT = append(u.SNAT, snat)
		errs = append(errs, compile.Below(fmt.Sprintf("snat[%d]", i), err))
	}
	removed, err := snatKeysFromProto(p.GetSnatRemoved())
	u.SNATRemoved, errs = removed, append(errs, err)
	var f fields
	u.Keys = f.keys("fastpathKeys", p.GetFastpathKeys())
	u.SYNSecrets = f.synSecrets("synSecrets", p.GetSynSecrets())
	u.Routes = f.routes("routes", p.GetRoutes())
	u.Backlogs = f.backlogs("backlogs", p.GetBacklogs())
	u.ListsRemoved = p.GetPrefixListsRemoved()
	u.Lists, err = chunks.lists(p)
	errs = append(errs, err)
	u.Networks, err = muxNetworksFromProto(p.GetNetworks())
	errs = append(errs, compile.Below("networks", err))
	errs = append(errs, f.Err())
	return u, errors.Join(errs...)
}

// HostUpdateToProto writes u.
func HostUpdateToProto(u HostUpdate) *weirv1.SyncHostResponse {
	p := &weirv1.SyncHostResponse{
		Generation: uint64(u.Generation), Cluster: u.Cluster, Snapshot: u.Snapshot, Muxes: compile.SourceTexts(u.Muxes),
		FastpathKeys: keysToProto(u.Keys), SynSecrets: synSecretsToProto(u.SYNSecrets),
	}
	if u.HashKey != (flowhash.Key{}) {
		p.HashKey = u.HashKey[:]
	}
	for _, b := range u.Backends {
		p.Backends = append(p.Backends, HostBackendToProto(b))
	}
	for _, k := range u.Removed {
		p.Removed = append(p.Removed, HostBackendKeyToProto(k))
	}
	for _, s := range u.SNAT {
		told := HostSNATToProto(s)
		told.Ranges, told.Delta = rangesOrDelta(snat.List{Written: s.Written, Ranges: s.Ranges}, u.SNATBefore[s.Key])
		p.Snat = append(p.Snat, told)
	}
	p.SnatRemoved, p.SnatSnapshot, p.TellRanges = snatKeysToProto(u.SNATRemoved), u.SNATSnapshot, u.TellRanges
	p.Networks = hostNetworksToProto(u.Networks)
	p.Steered, p.SteeredRemoved = steeredToProto(u.Steering)
	return p
}

// HostUpdateFromProto reads what HostUpdateToProto wrote, when PortLists has completed it.
func HostUpdateFromProto(p *weirv1.SyncHostResponse) (HostUpdate, error) {
	var f fields
	u := HostUpdate{
		Generation: model.Generation(p.GetGeneration()), Cluster: p.GetCluster(), Snapshot: p.GetSnapshot(),
		Muxes: f.Prefixes("muxes", p.GetMuxes()), Keys: f.keys("fastpathKeys", p.GetFastpathKeys()),
		SYNSecrets: f.synSecrets("synSecrets", p.GetSynSecrets()), TellRanges: p.GetTellRanges(),
	}
	errs := []error{f.Err()}
	if len(p.GetHashKey()) > 0 { // else this host needs none, or has it
		key, err := flowhash.NewKey(p.GetHashKey())
		u.HashKey = key
		errs = append(errs, err)
	}
	for i, b := range p.GetBackends() {
		backend, err := HostBackendFromProto(b)
		u.Backends = append(u.Backends, backend)
		errs = append(errs, compile.Below(fmt.Sprintf("backends[%d]", i), err))
	}
	for i, k := range p.GetRemoved() {
		key, err := HostBackendKeyFromProto(k)
		u.Removed = append(u.Removed, key)
		errs = append(errs, compile.Below(fmt.Sprintf("removed[%d]", i), err))
	}
	for i, s := range p.GetSnat() {
		snat, err := HostSNATFromProto(s)
		snat.Cluster = u.Cluster
		u.SNAT = append(u.SNAT, snat)
		errs = append(errs, compile.Below(fmt.Sprintf("snat[%d]", i), err))
	}
	removed, err := snatKeysFromProto(p.GetSnatRemoved())
	u.SNATRemoved, u.SNATSnapshot, errs = removed, p.GetSnatSnapshot(), append(errs, err)
	u.Networks, err = hostNetworksFromProto(p.GetNetworks())
	errs = append(errs, compile.Below("networks", err))
	u.Steering, err = steeredFromProto(p.GetSteered(), p.GetSteeredRemoved())
	return u, errors.Join(append(errs, err)...)
}
