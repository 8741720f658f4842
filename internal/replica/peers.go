package replica

import (
	"fmt"
	"sync"

	"github.com/weirlb/weir/internal/rpc"
)

// Peers are clients of the other replicas, one for each address, so that calls share connections.
type Peers struct {
	access func(address string) rpc.Access

	mu      sync.Mutex
	clients map[string]*rpc.Client
}

// NewPeers makes clients with the credentials that access returns.
func NewPeers(access func(address string) rpc.Access) *Peers {
	return &Peers{access: access, clients: map[string]*rpc.Client{}}
}

// At returns the client of the replica at address.
func (p *Peers) At(address string) (*rpc.Client, error) {
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

// Close closes the connections.
func (p *Peers) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, client := range p.clients {
		client.Close()
	}
}
