// Package pin keeps a data plane in a folder on a bpffs, so that it outlives its daemon.
//
//	<folder>/          locked by the daemon that owns it
//	<folder>/live/     what runs: maps and links
//	<folder>/new/      what a first start builds; renamed to live when it is whole
//
// A later one that can't go on with what is live builds new too, and lets both change places.
//
// So live is either absent or complete, however a start ends.
package pin
