package main

import "maps"

// The model's nouns. An address stands for a VIP's address, addresses follow one another, and a prefix is a range of them.
type (
	cellID  int
	address int
	tenant  int
	// epoch of an address grows with each decision of the directory about it.
	epoch int
	// version of what the directory tells a cell.
	version int
)

const nobody cellID = -1

// faults are put into the model by tests, to see that the oracle finds them. Without any it is the design.
type faults struct {
	epochsIgnored   bool // the directory takes a release of another epoch
	versionsIgnored bool // a cell takes what it is told in any order
	numbersIgnored  bool // a returned part of a lease counts whatever the lease has become
	muxesNotAwaited bool // a cell releases before its muxes have withdrawn
	returnsForgot   bool // an address that a cell gets again is taken for one that it never lost
	silentReplaced  bool // the directory gives away what a silent cell has
	expiredCounted  bool // the directory leases again what ran out
	cutOffWithdraws bool // a cell that hears nothing of the directory withdraws
}

// holding is what a cell is told of an address that it has.
type holding struct {
	epoch   epoch
	got     epoch // with which the cell got it: what the cell has of before is not its own
	leaving bool  // it shall be released
}

// lease is a part of a tenant's quota that a cell may use.
type lease struct {
	amount int
	number int // grows with each change
	ask    int // the directory wants it lowered to this
}

// view is all that a cell shall know, as the directory has it in one version.
type view struct {
	version version
	holds   map[address]holding
	vips    map[address]tenant // that came with what it got last, until it confirmed them
	leases  map[tenant]lease
	until   int // ticks: leases admit nothing later
}

func (v view) clone() view {
	v.holds, v.vips, v.leases = maps.Clone(v.holds), maps.Clone(v.vips), maps.Clone(v.leases)
	return v
}

// report is what a cell tells the directory.
type report struct {
	from     cellID
	seen     version             // of the newest view that it took over
	released map[address]release // that it has withdrawn everywhere, as long as its view has them
	returned map[tenant]returned // parts of leases
	wants    map[tenant]int      // leases that are too small, in all
}

// release says that nobody in the cell serves the address, and what was there.
type release struct {
	epoch  epoch
	tenant tenant
	used   bool // there is a VIP
}

// returned says that a lease of a number is used up to the amount only.
type returned struct{ number, amount int }
