package manager

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/rpc"
)

// leaderWait bounds how long a call waits for a leader to be elected.
const leaderWait = 4 * time.Second

// leads says whether this manager writes the desired state.
func (m *Manager) leads() bool {
	epoch, _ := m.store.Epoch()
	return epoch != 0
}

// whileLeading runs the loops that write the desired state while this manager leads, until ctx ends. They
// begin anew with each of its terms, and have ended before the next one.
func (m *Manager) whileLeading(ctx context.Context, loops ...func(context.Context) error) error {
	for {
		epoch, changed := m.store.Epoch()
		if epoch == 0 {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		term, end := context.WithCancel(ctx)
		group, term := errgroup.WithContext(term)
		for _, loop := range loops {
			group.Go(func() error { return loop(term) })
		}
		select {
		case <-changed:
		case <-term.Done():
		}
		end()
		if err := group.Wait(); err != nil && ctx.Err() == nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// awaitLeader returns the address of the leader's API, empty if it is this manager. It waits a while for
// one to be elected.
func (m *Manager) awaitLeader(ctx context.Context) (string, error) {
	expired := time.NewTimer(leaderWait)
	defer expired.Stop()
	for {
		epoch, elected := m.store.Epoch()
		if epoch != 0 {
			return "", nil
		}
		state, changed := m.store.Watch()
		if state.Leader != "" && state.Leader != m.cfg.Name {
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

// peers are clients of the other managers, by address.
type peers struct {
	access func(address string) rpc.Access

	mu      sync.Mutex
	clients map[string]*rpc.Client
}

func newPeers(access func(address string) rpc.Access) *peers {
	return &peers{access: access, clients: map[string]*rpc.Client{}}
}

// at returns a client of the manager at address.
func (p *peers) at(address string) (*rpc.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if client := p.clients[address]; client != nil {
		return client, nil
	}
	client, err := p.access(address).Client()
	if err != nil {
		return nil, fmt.Errorf("call the manager at %s: %w", address, err)
	}
	p.clients[address] = client
	return client, nil
}

func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, client := range p.clients {
		client.Close()
	}
}
