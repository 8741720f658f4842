package replica

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/truststore"
)

// leaderWait bounds how long a call waits for a leader to be elected.
const leaderWait = 4 * time.Second

// Store is what a replica reads of the store.
type Store interface {
	Epoch() (model.Epoch, <-chan struct{})
	State() *store.State
	Watch() (*store.State, <-chan struct{})
	Trust() (*truststore.Trust, <-chan struct{})
	Current(context.Context) (model.Generation, error)
	VerifyLeadership(context.Context) error
}

// Replica is this manager among the replicas.
type Replica struct {
	Name             string
	PartitionedAfter time.Duration // how long the store may be silent before nodes go to another replica

	store     Store
	now       func() time.Time
	log       *slog.Logger
	partition partition
}

// New makes the replica of the manager that is called name.
func New(name string, s Store, now func() time.Time, log *slog.Logger) *Replica {
	return &Replica{
		Name: name, PartitionedAfter: DefaultPartitionedAfter, store: s, now: now, log: log,
		partition: partition{began: make(chan struct{})},
	}
}

// Leads says whether this replica is the leader, which alone writes the desired state.
func (r *Replica) Leads() bool {
	epoch, _ := r.store.Epoch()
	return epoch != 0
}

// AwaitLeader returns the address of the leader's API, empty if this replica leads. While there is none it waits for an
// election, for a bounded time.
func (r *Replica) AwaitLeader(ctx context.Context) (string, error) {
	expired := time.NewTimer(leaderWait)
	defer expired.Stop()
	for {
		epoch, elected := r.store.Epoch()
		if epoch != 0 {
			return "", nil
		}
		state, changed := r.store.Watch()
		if state.Leader != "" && state.Leader != r.Name {
			return state.LeaderAddress, nil
		}
		select {
		case <-elected:
		case <-changed:
		case <-expired.C:
			return "", apierr.ErrNoLeader
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}
