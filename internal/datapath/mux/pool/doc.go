// Package pool writes what all endpoints share: the hash key, outer sources and encapsulation of the pool, and the other
// muxes that fragments are relayed between.
package pool
