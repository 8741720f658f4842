// Package progress is what managers tell each other of the generations that their nodes have acknowledged: how it is written,
// what of it is urgent, and which of many muxes is the slowest.
package progress
