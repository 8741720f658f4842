// Package vipstatus writes to the store what the leader notes of VIPs.
package vipstatus

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/election"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

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

// Writer writes the conditions of VIPs. Only the replica that leads may.
type Writer struct{ election *election.Election }

// New makes a Writer.
func New(e *election.Election) *Writer { return &Writer{e} }

// Put notes the conditions of VIPs, by name, and forgets those of VIPs that are gone.
func (w *Writer) Put(ctx context.Context, conditions map[string]Conditions, gone []string) error {
	ops := make([]clientv3.Op, 0, len(conditions)+len(gone))
	for name, c := range conditions {
		value, err := codec.Encode(c)
		if err != nil {
			return fmt.Errorf("write the conditions of %s: %w", name, err)
		}
		ops = append(ops, clientv3.OpPut(keyspace.Conditions+name, value))
	}
	for _, name := range gone {
		ops = append(ops, clientv3.OpDelete(keyspace.Conditions+name))
	}
	for len(ops) > 0 {
		n := min(len(ops), etcd.SafeOperations)
		if err := w.election.Commit(ctx, ops[:n]); err != nil {
			return etcd.Explain("write conditions of VIPs", err)
		}
		ops = ops[n:]
	}
	return nil
}
