// Package auditlog stores the audit log in etcd: what was changed and, apart from it, what was refused.
package auditlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
	"github.com/weirlb/weir/internal/trust"
)

// How many entries are kept: about so many, and the newest in any case.
const (
	KeepChanges  = 20000
	KeepRefusals = 5000
	pruneSlack   = 256
)

// Log is where the entries are stored.
type Log struct{ etcd *etcd.Client }

// New returns the log.
func New(client *etcd.Client) *Log { return &Log{client} }

func prefixOf(refused bool) (prefix string, keep int64) {
	if refused {
		return keyspace.AuditRefusals, KeepRefusals
	}
	return keyspace.AuditChanges, KeepChanges
}

// Append writes entries, of one manager, to the audit log.
func (l *Log) Append(ctx context.Context, entries []trust.AuditEntry) error {
	for part := range slices.Chunk(entries, etcd.SafeOperations) {
		ops := make([]clientv3.Op, 0, len(part))
		for i, e := range part {
			value, err := codec.Encode(e)
			if err != nil {
				return fmt.Errorf("write the audit log: %w", err)
			}
			prefix, _ := prefixOf(e.Refused)
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("%s%020d-%s-%03d", prefix, e.Time.UnixNano(), e.Manager, i), value))
		}
		ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
		_, err := l.etcd.Txn(ctx).Then(ops...).Commit()
		cancel()
		if err != nil {
			return etcd.Explain("write the audit log", err)
		}
	}
	return nil
}

// Prune deletes the oldest entries beyond those that are kept.
func (l *Log) Prune(ctx context.Context) error {
	for _, refused := range []bool{false, true} {
		prefix, keep := prefixOf(refused)
		count, err := l.etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return etcd.Explain("prune the audit log", err)
		}
		if count.Count <= keep+pruneSlack {
			continue
		}
		old, err := l.etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend), clientv3.WithLimit(count.Count-keep),
			clientv3.WithRev(count.Header.Revision))
		if err != nil {
			return etcd.Explain("prune the audit log", err)
		}
		last := string(old.Kvs[len(old.Kvs)-1].Key)
		_, err = l.etcd.Txn(ctx). // if no other replica has
						If(clientv3.Compare(clientv3.CreateRevision(last), ">", 0)).
						Then(clientv3.OpDelete(prefix, clientv3.WithRange(last+"\x00"))).Commit()
		if err != nil {
			return etcd.Explain("prune the audit log", err)
		}
	}
	return nil
}

// Query says which entries of the audit log are asked for. What is empty asks for any.
type Query struct {
	Limit    int
	Refused  bool      // only what was refused
	Identity string    // who did it: "user/alice"
	Subject  string    // what it was about, a word of it: "vip/shop"
	Since    time.Time // not before
}

// pageSize is how many entries are read at a time.
const pageSize = 1000

func (q Query) matches(e trust.AuditEntry) bool {
	return (q.Identity == "" || e.Identity == q.Identity) && (q.Subject == "" || slices.Contains(strings.Fields(e.Subject), q.Subject))
}

// List returns the newest entries of those that are asked for.
func (l *Log) List(ctx context.Context, q Query) ([]trust.AuditEntry, error) {
	var all []trust.AuditEntry
	for _, refused := range []bool{false, true} {
		if q.Refused && !refused {
			continue
		}
		found, err := l.listOf(ctx, refused, q)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b trust.AuditEntry) int { return b.Time.Compare(a.Time) })
	return all[:min(q.Limit, len(all))], nil
}

// listOf reads what was changed, or what was refused, page by page.
func (l *Log) listOf(ctx context.Context, refused bool, q Query) (found []trust.AuditEntry, err error) {
	prefix, _ := prefixOf(refused)
	first, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	if !q.Since.IsZero() {
		first = fmt.Sprintf("%s%020d", prefix, max(0, q.Since.UnixNano()))
	}
	for {
		response, err := l.etcd.Get(ctx, first, clientv3.WithRange(end),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(pageSize))
		if err != nil {
			return nil, etcd.Explain("read the audit log", err)
		}
		for _, kv := range response.Kvs {
			e, err := codec.Decode[trust.AuditEntry](string(kv.Key), kv.Value)
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
