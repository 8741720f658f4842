// Package placement decides which switches announce and serve each VIP, and which VIPs stay with the software muxes.
//
// It follows Duet (SIGCOMM 2014, section 4) and goes beyond it: a VIP may be announced by several switches at once, each
// with its part of the backends; what fits stays where it is; a budget bounds the traffic that a failure of a container
// or of three switches sends to the software muxes. The algorithms of the paper stand beside it, as they are there.
//
// Resources are the usable bandwidth of links, the tunnel and ECMP entries of switches, the route that every switch
// holds for each placed VIP, and the failure budgets. The cost of a candidate is the utilisation of the most used
// resource that the VIP touches there; for the paper's algorithms, of any resource.
//
// What finds no room by that may exchange it with others (simulated annealing among few VIPs, bounded in work).
//
// Invariants: no resource is used beyond its size. The same input in another order gives the same placement: VIPs are
// taken by descending rate, then by name, and ties between candidates are decided by a hash of their names. There is no
// clock, and what is drawn follows from the seed of the policy.
package placement
