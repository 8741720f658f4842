package store

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/trust"
)

// Where the audit log lies: what was changed, and, apart from it, what was refused.
const (
	prefixChanges  = "/weir/audit/v1/changes/"
	prefixRefusals = "/weir/audit/v1/refusals/"
)

// How many entries are kept: about so many, and the newest in any case.
const (
	KeepChanges  = 20000
	KeepRefusals = 5000
	pruneSlack   = 256
)

func auditPrefix(refused bool) (prefix string, keep int64) {
	if refused {
		return prefixRefusals, KeepRefusals
	}
	return prefixChanges, KeepChanges
}

// maxAudited bounds one write of the audit log, in entries.
const maxAudited = 100

// AppendAudit writes entries, of one manager, to the audit log.
func (s *Store) AppendAudit(ctx context.Context, entries []trust.AuditEntry) error {
	for part := range slices.Chunk(entries, maxAudited) {
		ops := make([]clientv3.Op, 0, len(part))
		for i, e := range part {
			value, err := encode(e)
			if err != nil {
				return fmt.Errorf("write the audit log: %w", err)
			}
			prefix, _ := auditPrefix(e.Refused)
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("%s%020d-%s-%03d", prefix, e.Time.UnixNano(), e.Manager, i), value))
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := s.client.Txn(ctx).Then(ops...).Commit()
		cancel()
		if err != nil {
			return explain("write the audit log", err)
		}
	}
	return nil
}

// PruneAudit deletes the oldest entries beyond those that are kept.
func (s *Store) PruneAudit(ctx context.Context) error {
	for _, refused := range []bool{false, true} {
		prefix, keep := auditPrefix(refused)
		count, err := s.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return explain("prune the audit log", err)
		}
		if count.Count <= keep+pruneSlack {
			continue
		}
		old, err := s.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend), clientv3.WithLimit(count.Count-keep),
			clientv3.WithRev(count.Header.Revision))
		if err != nil {
			return explain("prune the audit log", err)
		}
		last := string(old.Kvs[len(old.Kvs)-1].Key)
		_, err = s.client.Txn(ctx). // if no other replica has
						If(clientv3.Compare(clientv3.CreateRevision(last), ">", 0)).
						Then(clientv3.OpDelete(prefix, clientv3.WithRange(last+"\x00"))).Commit()
		if err != nil {
			return explain("prune the audit log", err)
		}
	}
	return nil
}

// Audit returns the newest entries, at most so many: all, or only those that were refused.
func (s *Store) Audit(ctx context.Context, limit int, onlyRefused bool) ([]trust.AuditEntry, error) {
	var all []trust.AuditEntry
	for _, refused := range []bool{false, true} {
		if onlyRefused && !refused {
			continue
		}
		prefix, _ := auditPrefix(refused)
		response, err := s.client.Get(ctx, prefix, clientv3.WithPrefix(),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(int64(limit)))
		if err != nil {
			return nil, explain("read the audit log", err)
		}
		for _, kv := range response.Kvs {
			e, err := decode[trust.AuditEntry](string(kv.Key), kv.Value)
			if err != nil {
				return nil, err
			}
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b trust.AuditEntry) int { return b.Time.Compare(a.Time) })
	return all[:min(limit, len(all))], nil
}
