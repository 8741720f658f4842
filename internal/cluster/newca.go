package cluster

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/election"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// forgetCA takes the CA out of the store, and all that it signed: no token or certificate from before is good. The next manager
// makes another CA when it starts, and all join anew.
func forgetCA() []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpDelete(keyspace.CA), clientv3.OpDelete(keyspace.Principals, clientv3.WithPrefix()),
		clientv3.OpDelete(keyspace.Tokens, clientv3.WithPrefix()), clientv3.OpDelete(keyspace.TokenUses, clientv3.WithPrefix()),
	}
}

// forgetManagers takes out what is known of the managers from before, and what they wrote on their leases: streams, nodes that
// do not answer, and what their hosts have.
func forgetManagers() (ops []clientv3.Op) {
	for _, prefix := range []string{keyspace.Managers, keyspace.Streams, keyspace.Excluded, keyspace.Neighbors, keyspace.Ready} {
		ops = append(ops, clientv3.OpDelete(prefix, clientv3.WithPrefix()))
	}
	return ops
}

// ForgetCA takes the CA out of the external etcd of cfg, of which no manager may run. What users have configured stays.
func ForgetCA(ctx context.Context, cfg etcd.Config) error {
	if len(cfg.Endpoints) == 0 {
		return errors.New("the CA of an embedded store is replaced by weir restore --rotate-ca: name an external etcd with --etcd-endpoints")
	}
	client, err := etcd.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer client.Close()
	none, err := codec.Encode(struct{}{})
	if err != nil {
		return err
	}
	ops := append(append([]clientv3.Op{clientv3.OpPut(keyspace.Generation, none)}, forgetCA()...), forgetManagers()...)
	done, err := client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(keyspace.Leader), "=", 0), clientv3.Compare(clientv3.CreateRevision(keyspace.CA), ">", 0)).
		Then(ops...).Else(clientv3.OpGet(keyspace.Leader)).Commit()
	if err != nil {
		return etcd.Explain("forget the CA", err)
	}
	if done.Succeeded {
		return nil
	}
	leaders := done.Responses[0].GetResponseRange().Kvs
	if len(leaders) == 0 {
		return errors.New("forget the CA: the store has none: is it the etcd of a cluster with TLS?")
	}
	leader, err := codec.Decode[election.Document](keyspace.Leader, leaders[0].Value)
	if err != nil {
		return err
	}
	return fmt.Errorf("forget the CA: manager %s runs: stop all managers, and try again %d seconds later", leader.Name, election.LeaseSeconds)
}
