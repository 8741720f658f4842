// Package steer fills the tables by which the agent's program decides where packets are served that switches bring
// (docs/design/steering.md): endpoints, buckets and backends as muxes have them, and who may send such packets.
package steer
