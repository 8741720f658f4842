package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/overloadpolicy"
)

// callTimeout bounds one write.
const callTimeout = 10 * time.Second

// Change is one step of the desired state.
type Change struct {
	VIPs         []model.VIP
	DeleteVIPs   []string
	Tables       map[model.EndpointKey]desired.Table
	DeleteTables []model.EndpointKey
	Nodes        []model.Node
	DeleteNodes  []string          // with their status and health
	Records      map[string]Record // of VIPs, by name
	Pools        []model.AddressPool
	DeletePools  []string
	// PrefixLists have their chunks in the store: see StageChunks.
	PrefixLists       []model.PrefixList
	DeletePrefixLists []string
	Ports             map[model.SNATKey]desired.PortAllocation
	DeletePorts       []model.SNATKey
	FastpathKeys      []model.FastpathKey // all of them; nil: as they were
	SYNSecrets        []model.SYNSecret   // likewise
	// Steps are of overload policies, by VIP; the zero value is nothing, which is not kept.
	Steps map[string]overloadpolicy.State
	// DeleteTenants have neither VIPs, prefix lists nor users.
	DeleteTenants []string
	// Restored is the next step of a restore: Settled, or none, when it is over; nil: as it was.
	Restored *desired.Restored
}

// commit writes what was folded if the desired state is still that of its base, and this replica leads in
// epoch. If the state is another, it returns the generation that there is. When nothing is to be written it
// holds that the base is current all the same: a leader that was frozen does not know that it knows too little.
func (s *Store) commit(ctx context.Context, fence clientv3.Cmp, epoch model.Epoch, f *folded) (model.Generation, bool, error) {
	value, err := encode(generationDocument{Traces: f.traces()})
	if err != nil {
		return 0, false, err
	}
	ops := slices.Collect(maps.Values(f.ops))
	if len(ops) > 0 {
		if err := s.room(); err != nil {
			return 0, false, err
		}
		ops = append(ops, clientv3.OpPut(keyGeneration, value))
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := s.client.Txn(ctx).
		If(append(append(f.conditions(), f.trustConditions()...), fence, clientv3.Compare(clientv3.ModRevision(keyGeneration), "=", int64(f.base.Generation)))...).
		Then(ops...).
		Else(clientv3.OpGet(keyGeneration), clientv3.OpGet(keyLeader)).
		Commit()
	switch {
	case err != nil:
		return 0, false, explain("write to the store", err)
	case response.Succeeded && len(ops) == 0:
		return f.base.Generation, true, nil
	case response.Succeeded:
		return model.Generation(response.Header.Revision), true, nil
	}
	if leader := response.Responses[1].GetResponseRange().GetKvs(); len(leader) != 1 || leader[0].CreateRevision != int64(epoch) {
		return 0, false, ErrNotLeader
	}
	found := response.Responses[0].GetResponseRange().GetKvs()
	if len(found) != 1 {
		return 0, false, fmt.Errorf("write to the store: %s is missing: restore the store from a backup", keyGeneration)
	}
	return model.Generation(found[0].ModRevision), false, nil
}

// operations are the writes that make s hold the change, without that of the generation.
func (c Change) operations(s *State) ([]clientv3.Op, error) {
	ops, err := c.prefixListOperations(s)
	ops, errs := c.tenantOperations(c.restoredOperation(ops, []error{err}))
	put := func(key string, value string, err error) {
		ops, errs = append(ops, clientv3.OpPut(key, value)), append(errs, err)
	}
	for _, vip := range c.VIPs {
		value, err := encodeMessageIn(s, prefixVIPs+vip.Name, vipMessage(vip, c.Records[vip.Name]))
		put(prefixVIPs+vip.Name, value, err)
	}
	for _, name := range c.DeleteVIPs {
		ops = append(ops, clientv3.OpDelete(prefixVIPs+name), clientv3.OpDelete(prefixConditions+name), clientv3.OpDelete(prefixSteps+name))
	}
	for _, pool := range c.Pools {
		value, err := encodeMessageIn(s, prefixPools+pool.Name, compile.AddressPoolMessage(pool))
		put(prefixPools+pool.Name, value, err)
	}
	if c.FastpathKeys != nil {
		value, err := encode(fastpathKeysToDocument(c.FastpathKeys))
		put(keyFastpath, value, err)
	}
	if c.SYNSecrets != nil {
		value, err := encode(synSecretsToDocument(c.SYNSecrets))
		put(keySYNSecrets, value, err)
	}
	for _, name := range c.DeletePools {
		ops = append(ops, clientv3.OpDelete(prefixPools+name))
	}
	for key, table := range c.Tables {
		value, err := encodeIn(s, tableKey(key), tableToDocument(table))
		put(tableKey(key), value, err)
	}
	for _, key := range c.DeleteTables {
		ops = append(ops, clientv3.OpDelete(tableKey(key)))
	}
	for key, ports := range c.Ports {
		value, err := encodeIn(s, portsKey(key), portsToDocument(ports))
		put(portsKey(key), value, err)
	}
	for _, key := range c.DeletePorts {
		ops = append(ops, clientv3.OpDelete(portsKey(key)))
	}
	for name, steps := range c.Steps {
		if steps == (overloadpolicy.State{}) {
			ops = append(ops, clientv3.OpDelete(prefixSteps+name))
			continue
		}
		value, err := encode(steps)
		put(prefixSteps+name, value, err)
	}
	for _, node := range c.Nodes {
		value, err := encodeIn(s, prefixNodes+node.Name, nodeDocument(node))
		put(prefixNodes+node.Name, value, err)
	}
	for _, name := range c.DeleteNodes {
		ops = append(ops, clientv3.OpDelete(prefixNodes+name),
			clientv3.OpDelete(prefixStatus+name), clientv3.OpDelete(prefixHealth+name))
	}
	return ops, errors.Join(errs...)
}

// explain says what an operator can do about an error of etcd.
func explain(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%s: etcd is full and read-only: free space, defragment, and disarm its NOSPACE alarm", what)
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("%s: %w: apply fewer VIPs at a time, or raise etcd's --max-txn-ops and --max-request-bytes", what, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: etcd does not answer", what)
	}
	return fmt.Errorf("%s: %w", what, err)
}
