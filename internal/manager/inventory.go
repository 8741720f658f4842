package manager

import (
	"sync"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// inventoryShare bounds what counting costs: it rests for so many times as long as it took.
const inventoryShare = 20

// inventory counts what is in a State, which takes long when there is much.
type inventory struct {
	mu    sync.Mutex
	state *store.State
	due   time.Time
	last  stock
}

type stock struct {
	endpoints, dead int
	backends        map[model.Health]int
}

// of counts s, or returns what was counted a short while ago.
func (i *inventory) of(s *store.State) stock {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	if i.state == s || now.Before(i.due) {
		return i.last
	}
	i.state, i.last = s, takeStock(s)
	i.due = now.Add(inventoryShare * time.Since(now))
	return i.last
}

func takeStock(s *store.State) stock {
	n := stock{backends: map[model.Health]int{}}
	for _, vip := range s.VIPs.All() {
		n.endpoints += len(vip.Endpoints)
		for _, e := range vip.Endpoints {
			well := false
			for _, b := range e.Backends {
				health := desired.HealthOf(&s.State, vip, e, b).Health
				n.backends[health]++
				well = well || health == model.HealthHealthy || health == model.HealthUnchecked
			}
			if !well {
				n.dead++
			}
		}
	}
	return n
}
