package multipath

import (
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// How long rows live without being refreshed, and how often they are.
const (
	NameLife     = 15 * time.Minute
	RefreshEvery = 5 * time.Minute
	RefreshFirst = time.Second // after a connection began: what was sent with its first segment may be lost
	// AskAfter is when a home asks the host of a token's tunnel, as nobody has refreshed it.
	AskAfter = RefreshEvery + RefreshEvery/2
)

// Name is a token of an endpoint.
type Name struct {
	Endpoint model.EndpointKey
	Token    Token
}

// Noted is what became of what a home was told.
type Noted string

// The outcomes.
const (
	NotedNew      Noted = "new"
	NotedAgain    Noted = "refreshed"
	NotedConflict Noted = "conflict" // another host has the same token, and lives
	NotedFull     Noted = "full"     // the VIP has all the rows that it may have
)

// holder is a row of a Directory.
type holder struct {
	tunnel netip.Addr
	until  time.Duration
}

// Directory is what a home knows: who has which tokens. Times are of one clock.
type Directory struct {
	limit func(vip netip.Addr) int
	rows  map[Name]holder
	used  map[netip.Addr]int
}

// NewDirectory is empty. limit is how many rows a VIP may have.
func NewDirectory(limit func(vip netip.Addr) int) *Directory {
	return &Directory{limit: limit, rows: map[Name]holder{}, used: map[netip.Addr]int{}}
}

// Note notes that the tunnel's workload has the token. A row of another one is not replaced while it lives: tokens are unique per
// server alone, and the first one's subflows go on.
func (d *Directory) Note(name Name, tunnel netip.Addr, now time.Duration) Noted {
	row, had := d.rows[name]
	vip := name.Endpoint.VIP
	switch {
	case had && row.tunnel == tunnel:
		d.rows[name] = holder{tunnel, now + NameLife}
		return NotedAgain
	case had && row.until > now:
		return NotedConflict
	case !had && d.used[vip] >= d.limit(vip):
		return NotedFull
	case !had:
		d.used[vip]++
	}
	d.rows[name] = holder{tunnel, now + NameLife}
	return NotedNew
}

// Find is the tunnel whose workload has the token; zero: it is not known.
func (d *Directory) Find(name Name, now time.Duration) netip.Addr {
	if row, had := d.rows[name]; had && row.until > now {
		return row.tunnel
	}
	return netip.Addr{}
}

// Sweep removes rows that were not refreshed.
func (d *Directory) Sweep(now time.Duration) {
	for name, row := range d.rows {
		if row.until <= now {
			delete(d.rows, name)
			d.used[name.Endpoint.VIP]--
		}
	}
}

// Len is how many rows there are.
func (d *Directory) Len() int { return len(d.rows) }
