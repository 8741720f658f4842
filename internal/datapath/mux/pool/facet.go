package pool

import (
	"sync"

	"github.com/weirlb/weir/internal/model"
)

// Pool is what all endpoints share, and the muxes that do.
type Pool struct {
	mu      *sync.Mutex
	row     *Table
	members *Members
}

// New is of the pool's row and members, under the data plane's lock.
func New(mu *sync.Mutex, row *Table, members *Members) *Pool { return &Pool{mu, row, members} }

// SetSettings writes the pool's row. The program reads it field by field, so what differs between
// muxes or changes the choice of backends is to be set before the first endpoint.
func (p *Pool) SetSettings(to Settings) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.row.Set(to)
}

// Settings reads the live row; it is all zero before the first SetSettings.
func (p *Pool) Settings() (Settings, error) { return p.row.Settings() }

// SetGeneration notes which version of the desired state the tables hold.
func (p *Pool) SetGeneration(g model.Generation) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.row.SetGeneration(g)
}

// Generation is what SetGeneration noted last, by whichever process.
func (p *Pool) Generation() (model.Generation, error) { return p.row.Generation() }

// SetPoolMembers says which muxes the pool has, and which of them is this one.
func (p *Pool) SetPoolMembers(self string, all []model.PoolMember) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.members.Set(self, all)
}
