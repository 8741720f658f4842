// Package fabric models the network of a datacenter: switches, links, racks, and the load that a demand puts on each
// link when its VIP is announced by a set of switches.
//
//	core-1 ... core-10   core-11 ... core-20      tier 2, one group of cores for each plane
//	   \    |    /           \    |    /
//	    agg-1-1                 agg-1-2           tier 1, one aggregation switch of each plane in a container
//	       |     \           /     |
//	    tor-1-1    ...          tor-1-40          tier 0, a rack below each
//
// A packet takes two legs: from its source's rack, or from outside, to the nearest switch that announces the VIP; from
// there to the rack of a backend. On both legs each switch splits evenly over the links of its shortest paths (ECMP).
// An announcing switch of several sends to every rack its share of backends.
//
// Paths to a rack depend only on the neighbours of its switch. So racks whose switches have the same neighbours form a
// class, paths are computed by class, and only the links of the racks themselves are visited one by one. This holds in
// any graph: a dead link merely makes one class more.
//
// Invariants: loads are integers and each part is rounded up, so that a load is never below the true one, and what was
// added can be subtracted without rest. Nothing depends on the order in which switches and links are
// listed: they are numbered by name. Racks are numbered as listed.
package fabric
