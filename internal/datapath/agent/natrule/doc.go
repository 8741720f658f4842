// Package natrule writes the backends of a host into the programs' tables: where packets of an endpoint go that come to a
// tunnel address, and which outer headers are taken off.
package natrule
