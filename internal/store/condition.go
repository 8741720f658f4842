package store

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const prefixConditions = root + "conditions/"

// Conditions are what the leader noted of a VIP: they change by what nodes say, and when they did is
// known nowhere else.
type Conditions struct {
	Programmed Condition `json:"programmed"`
	Healthy    Condition `json:"healthy"`
	Backends   uint32    `json:"backends"` // that are healthy, so that whoever watches the VIP hears of each
}

// Condition is one of them.
type Condition struct {
	Status string    `json:"status"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"` // of the status
}

// writesAtOnce bounds the writes of one transaction of conditions.
const writesAtOnce = 100

// PutConditions notes the conditions of VIPs, by name, and forgets those of VIPs that are gone.
func (s *Store) PutConditions(ctx context.Context, conditions map[string]Conditions, gone []string) error {
	ops := make([]clientv3.Op, 0, len(conditions)+len(gone))
	for name, c := range conditions {
		value, err := encode(c)
		if err != nil {
			return fmt.Errorf("write the conditions of %s: %w", name, err)
		}
		ops = append(ops, clientv3.OpPut(prefixConditions+name, value))
	}
	for _, name := range gone {
		ops = append(ops, clientv3.OpDelete(prefixConditions+name))
	}
	for len(ops) > 0 {
		n := min(len(ops), writesAtOnce)
		if err := s.txn(ctx, ops[:n]); err != nil {
			return explain("write conditions of VIPs", err)
		}
		ops = ops[n:]
	}
	return nil
}

// txn makes the writes at once, within a bound of time, if this replica leads.
func (s *Store) txn(ctx context.Context, ops []clientv3.Op) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	leads, _, err := s.fence(ctx)
	if err != nil {
		return err
	}
	response, err := s.client.Txn(ctx).If(leads).Then(ops...).Commit()
	if err == nil && !response.Succeeded {
		return ErrNotLeader
	}
	return err
}
