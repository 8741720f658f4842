package hoststate

// Tenant bounds the sessions of a tenant. Of tenant 0 Own is what all may borrow.
type Tenant struct{ Own, Most, HalfOpen int }

// Tenants are the bounds by tenant.
type Tenants map[uint32]Tenant

// Sessions are those of a host, by row.
type Sessions map[uint32]*Session

// Refuses says why a tenant may have no more sessions; of says whose one is.
func (all Sessions) Refuses(tenant uint32, bounds Tenants, of func(*Session) uint32) string {
	rows, halfOpen, lent := map[uint32]int{}, 0, 0
	for _, s := range all {
		rows[of(s)]++
		if of(s) == tenant && !s.ClientACK {
			halfOpen++
		}
	}
	for other, n := range rows {
		lent += max(n-bounds[other].Own, 0)
	}
	bound := bounds[tenant]
	switch {
	case halfOpen >= bound.HalfOpen:
		return "drop_half_open"
	case rows[tenant] < bound.Own, rows[tenant] < bound.Most && lent < bounds[0].Own:
		return ""
	}
	return "drop_quota"
}
