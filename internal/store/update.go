package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/election"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/overloadpolicy"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// Change is one step of the desired state.
type Change struct {
	VIPs         []model.VIP
	DeleteVIPs   []string
	Tables       map[model.EndpointKey]desired.Table
	DeleteTables []model.EndpointKey
	Nodes        []model.Node
	DeleteNodes  []string                // with their status and health
	Records      map[string]codec.Record // of VIPs, by name
	Pools        []model.AddressPool
	DeletePools  []string
	// PrefixLists have their chunks in the store: see StageChunks.
	PrefixLists       []model.PrefixList
	DeletePrefixLists []string
	Networks          []vnet.Network
	DeleteNetworks    []string
	Overlay           *vnet.Overlay // nil: as it was
	DeleteOverlay     bool
	Ports             map[model.SNATKey]snatport.Allocation
	DeletePorts       []model.SNATKey
	FastpathKeys      []model.FastpathKey // all of them; nil: as they were
	SYNSecrets        []model.SYNSecret   // likewise
	FBTMasters        []fbt.Master        // likewise
	// HostNumbers are of hosts in virtual networks; the zero value is none, which is not kept.
	HostNumbers map[string]network.Number
	// Steps are of overload policies, by VIP; the zero value is nothing, which is not kept.
	Steps map[string]overloadpolicy.State
	// Placements are of VIPs in switches, by address; an empty State is not kept.
	Placements map[netip.Addr]placementpolicy.State
	// Fabrics are networks of data centers; DeleteFabrics are names.
	Fabrics       []compile.KeptFabric
	DeleteFabrics []string
	// DeleteTenants have neither VIPs, prefix lists nor users.
	DeleteTenants []string
	// Restored is the next step of a restore: Settled, or none, when it is over; nil: as it was.
	Restored *desired.Restored
}

// commit writes what was folded if the desired state is still that of its base, and this replica leads in
// epoch. If the state is another, it returns the generation that there is. When nothing is to be written it
// holds that the base is current all the same: a leader that was frozen does not know that it knows too little.
func (s *writer) commit(ctx context.Context, fence clientv3.Cmp, epoch model.Epoch, f *folded) (model.Generation, bool, error) {
	value, err := codec.Encode(generationDocument{Traces: f.traces()})
	if err != nil {
		return 0, false, err
	}
	ops := slices.Collect(maps.Values(f.ops))
	if len(ops) > 0 {
		if err := s.etcd.CheckDiskSpace(); err != nil {
			return 0, false, err
		}
		ops = append(ops, clientv3.OpPut(keyspace.Generation, value))
	}
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	response, err := s.etcd.Txn(ctx).
		If(append(append(f.conditions(), f.trustConditions()...), fence, clientv3.Compare(clientv3.ModRevision(keyspace.Generation), "=", int64(f.base.Generation)))...).
		Then(ops...).
		Else(clientv3.OpGet(keyspace.Generation), clientv3.OpGet(keyspace.Leader)).
		Commit()
	switch {
	case err != nil:
		return 0, false, etcd.Explain("write to the store", err)
	case response.Succeeded && len(ops) == 0:
		return f.base.Generation, true, nil
	case response.Succeeded:
		return model.Generation(response.Header.Revision), true, nil
	}
	if leader := response.Responses[1].GetResponseRange().GetKvs(); len(leader) != 1 || leader[0].CreateRevision != int64(epoch) {
		return 0, false, election.ErrNotLeader
	}
	found := response.Responses[0].GetResponseRange().GetKvs()
	if len(found) != 1 {
		return 0, false, fmt.Errorf("write to the store: %s is missing: restore the store from a backup", keyspace.Generation)
	}
	return model.Generation(found[0].ModRevision), false, nil
}

// operations are the writes that make s hold the change, without that of the generation.
func (c Change) operations(s *State) ([]clientv3.Op, error) {
	ops, err := c.prefixListOperations(s)
	ops, errs := c.networkOperations(s, ops, []error{err})
	ops, errs = c.placementOperations(s, ops, errs)
	ops, errs = c.fabricOperations(s, ops, errs)
	ops, errs = c.secretOperations(c.tenantOperations(c.restoredOperation(ops, errs)))
	put := func(key string, value string, err error) {
		ops, errs = append(ops, clientv3.OpPut(key, value)), append(errs, err)
	}
	for _, vip := range c.VIPs {
		value, err := encodeMessageIn(s, keyspace.VIPs+vip.Name, codec.VIPMessage(vip, c.Records[vip.Name]))
		put(keyspace.VIPs+vip.Name, value, err)
	}
	for _, name := range c.DeleteVIPs {
		ops = append(ops, clientv3.OpDelete(keyspace.VIPs+name), clientv3.OpDelete(keyspace.Conditions+name), clientv3.OpDelete(keyspace.Steps+name))
	}
	for _, pool := range c.Pools {
		value, err := encodeMessageIn(s, keyspace.Pools+pool.Name, compile.AddressPoolMessage(pool))
		put(keyspace.Pools+pool.Name, value, err)
	}
	for _, name := range c.DeletePools {
		ops = append(ops, clientv3.OpDelete(keyspace.Pools+name))
	}
	for key, table := range c.Tables {
		value, err := encodeIn(s, keyspace.Table(key), codec.NewTableDocument(table))
		put(keyspace.Table(key), value, err)
	}
	for _, key := range c.DeleteTables {
		ops = append(ops, clientv3.OpDelete(keyspace.Table(key)))
	}
	for key, holding := range c.Ports {
		value, err := encodeIn(s, keyspace.PortsOf(key), codec.NewPortsDocument(holding))
		put(keyspace.PortsOf(key), value, err)
	}
	for _, key := range c.DeletePorts {
		ops = append(ops, clientv3.OpDelete(keyspace.PortsOf(key)))
	}
	for name, steps := range c.Steps {
		if steps == (overloadpolicy.State{}) {
			ops = append(ops, clientv3.OpDelete(keyspace.Steps+name))
			continue
		}
		value, err := codec.Encode(steps)
		put(keyspace.Steps+name, value, err)
	}
	for _, node := range c.Nodes {
		value, err := encodeIn(s, keyspace.Nodes+node.Name, codec.NodeDocument(node))
		put(keyspace.Nodes+node.Name, value, err)
	}
	for _, name := range c.DeleteNodes {
		ops = append(ops, clientv3.OpDelete(keyspace.Nodes+name),
			clientv3.OpDelete(keyspace.Status+name), clientv3.OpDelete(keyspace.Health+name))
	}
	return ops, errors.Join(errs...)
}

// secretOperations adds the writes of secrets.
func (c Change) secretOperations(ops []clientv3.Op, errs []error) ([]clientv3.Op, []error) {
	for key, documents := range map[string][]codec.SecretDocument{
		keyspace.FastpathKeys: codec.NewFastpathKeys(c.FastpathKeys), keyspace.SYNSecrets: codec.NewSYNSecrets(c.SYNSecrets),
		keyspace.FBTMasters: codec.NewFBTMasters(c.FBTMasters),
	} {
		if len(documents) > 0 {
			value, err := codec.Encode(documents)
			ops, errs = append(ops, clientv3.OpPut(key, value)), append(errs, err)
		}
	}
	return ops, errs
}

// restoredOperation adds the write of the next step of a restore.
func (c Change) restoredOperation(ops []clientv3.Op, errs []error) ([]clientv3.Op, []error) {
	switch {
	case c.Restored == nil:
		return ops, errs
	case c.Restored.At == 0:
		return append(ops, clientv3.OpDelete(keyspace.Restored)), errs
	}
	value, err := codec.Encode(codec.RestoredDocument{Settled: c.Restored.Settled})
	return append(ops, clientv3.OpPut(keyspace.Restored, value)), append(errs, err)
}
