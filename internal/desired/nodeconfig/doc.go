// Package nodeconfig makes what muxes and hosts run of the desired state: endpoints, backends, port ranges, routes. Pure:
// no I/O, no clock.
package nodeconfig
