package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

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

// AuditQuery says which entries of the audit log are asked for. What is empty asks for any.
type AuditQuery struct {
	Limit    int
	Refused  bool      // only what was refused
	Identity string    // who did it: "user/alice"
	Subject  string    // what it was about, a word of it: "vip/shop"
	Since    time.Time // not before
}

// auditPage is how many entries are read at a time.
const auditPage = 1000

func (q AuditQuery) matches(e trust.AuditEntry) bool {
	return (q.Identity == "" || e.Identity == q.Identity) && (q.Subject == "" || slices.Contains(strings.Fields(e.Subject), q.Subject))
}

// Audit returns the newest entries of those that are asked for.
func (s *Store) Audit(ctx context.Context, q AuditQuery) ([]trust.AuditEntry, error) {
	var all []trust.AuditEntry
	for _, refused := range []bool{false, true} {
		if q.Refused && !refused {
			continue
		}
		found, err := s.auditOf(ctx, refused, q)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b trust.AuditEntry) int { return b.Time.Compare(a.Time) })
	return all[:min(q.Limit, len(all))], nil
}

// auditOf reads what was changed, or what was refused, page by page.
func (s *Store) auditOf(ctx context.Context, refused bool, q AuditQuery) (found []trust.AuditEntry, err error) {
	prefix, _ := auditPrefix(refused)
	first, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	if !q.Since.IsZero() {
		first = fmt.Sprintf("%s%020d", prefix, max(0, q.Since.UnixNano()))
	}
	for {
		response, err := s.client.Get(ctx, first, clientv3.WithRange(end),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(auditPage))
		if err != nil {
			return nil, explain("read the audit log", err)
		}
		for _, kv := range response.Kvs {
			e, err := decode[trust.AuditEntry](string(kv.Key), kv.Value)
			if err != nil {
				return nil, err
			}
			if q.matches(e) {
				found = append(found, e)
			}
			end = string(kv.Key)
		}
		if !response.More || len(found) >= q.Limit {
			return found, nil
		}
	}
}
