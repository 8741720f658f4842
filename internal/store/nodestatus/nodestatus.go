// Package nodestatus writes to the store what nodes report.
package nodestatus

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// patience is how long what is no news may wait to be written.
const patience = time.Second

// Writer writes what nodes report. What comes while a transaction is under way goes into the next: however many nodes
// report, there is one transaction at a time.
type Writer struct {
	etcd *etcd.Client
	log  *slog.Logger

	waitingMu sync.Mutex
	waiting   map[string]Write // by node
	news      chan struct{}    // holds at most one
	rest      chan struct{}    // holds at most one
}

// Write is what shall be written of a node.
type Write struct {
	Status Status
	Detail func() ([]byte, error) // makes the Detail of Status, when it is written
	News   bool                   // it is written at once, else with others
	Failed func(error)            // is called if it could not be written
}

// New makes a Writer, which writes while Run runs.
func New(client *etcd.Client, log *slog.Logger) *Writer {
	return &Writer{etcd: client, log: log, waiting: map[string]Write{}, news: make(chan struct{}, 1), rest: make(chan struct{}, 1)}
}

// Put has what a node said written soon. A node that was deleted meanwhile stays so.
func (s *Writer) Put(node string, w Write) {
	s.waitingMu.Lock()
	s.waiting[node] = w
	s.waitingMu.Unlock()
	wake := s.rest
	if w.News {
		wake = s.news
	}
	select {
	case wake <- struct{}{}:
	default:
	}
}

// Run writes what nodes said until ctx ends.
func (s *Writer) Run(ctx context.Context) error {
	var due <-chan time.Time
	for {
		select {
		case <-s.news:
		case <-due:
		case <-s.rest:
			if due == nil {
				due = time.After(patience)
			}
			continue
		case <-ctx.Done():
			return nil
		}
		due = nil
		s.waitingMu.Lock()
		waiting := s.waiting
		s.waiting = map[string]Write{}
		s.waitingMu.Unlock()
		if err := s.putAll(ctx, waiting); err != nil && ctx.Err() == nil {
			err = etcd.Explain("write what nodes said", err)
			s.log.Warn("the store does not take what nodes say, going on with the next", "nodes", len(waiting), "err", err)
			for _, w := range waiting {
				w.Failed(err)
			}
		}
	}
}

func (w Write) encode() (value string, err error) {
	if w.Status.Detail, err = w.Detail(); err != nil {
		return "", err
	}
	return codec.Encode(w.Status)
}

// putAll writes in as few transactions as an external etcd takes by default. What is too large for it is told of that node alone.
func (s *Writer) putAll(ctx context.Context, waiting map[string]Write) error {
	var nodes []string
	var ops []clientv3.Op
	size := 0
	write := func() error {
		defer func() { nodes, ops, size = nil, nil, 0 }()
		return s.putSome(ctx, nodes, ops, waiting)
	}
	for node, w := range waiting {
		value, err := w.encode()
		if err != nil {
			w.Failed(fmt.Errorf("write the status of %s: %w", node, err))
			continue
		}
		if len(ops) == etcd.SafeOperations || len(ops) > 0 && size+len(value) > etcd.SafeBytes {
			if err := write(); err != nil {
				return err
			}
		}
		size += len(value)
		nodes, ops = append(nodes, node), append(ops, clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(keyspace.Nodes+node), ">", 0)},
			[]clientv3.Op{clientv3.OpPut(keyspace.Status+node, value)}, nil))
	}
	if len(ops) == 0 {
		return nil
	}
	return write()
}

// putSome writes the statuses of nodes at once, or one by one if they are too large together.
func (s *Writer) putSome(ctx context.Context, nodes []string, ops []clientv3.Op, waiting map[string]Write) error {
	one, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	_, err := s.etcd.Txn(one).Then(ops...).Commit()
	cancel()
	if !etcd.TooLarge(err) {
		return err
	}
	if len(ops) == 1 {
		s.log.Warn("the store does not take what a node says", "node", nodes[0], "err", err)
		waiting[nodes[0]].Failed(err)
		return nil
	}
	for i := range ops {
		if err := s.putSome(ctx, nodes[i:i+1], ops[i:i+1], waiting); err != nil {
			return err
		}
	}
	return nil
}

// Status is what a node said last.
type Status struct {
	Seen         time.Time        `json:"seen"`
	Generation   model.Generation `json:"generation"` // that it runs
	Rejected     model.Generation `json:"rejected,omitempty"`
	Reason       string           `json:"reason,omitempty"` // why it rejected that generation
	Detail       json.RawMessage  `json:"detail,omitempty"` // written and read by the store's user
	SessionCount SessionCount     `json:"sessionCount,omitzero"`
}

// SessionCount is what of a host's last count of connections decides about the end of moves.
type SessionCount struct {
	At         time.Time              `json:"at"`                 // by the clock of the manager that it was told
	Generation model.Generation       `json:"generation"`         // that the host ran
	Draining   []model.HostBackendKey `json:"draining,omitempty"` // the backends that have one in a bucket that they are draining
}

// Equal says whether both are the same count.
func (c SessionCount) Equal(other SessionCount) bool {
	return c.At.Equal(other.At) && c.Generation == other.Generation
}
