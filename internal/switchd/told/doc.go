// Package told keeps what the manager last told a switch over restarts of its daemon.
//
// The file is a log of the manager's messages, each with its length and checksum; a snapshot begins it anew. When it was
// last written or touched is when the manager was last heard.
//
// Invariant: what the file holds is what was last told, or there is no file. A message that can't be written takes the file
// away, as a daemon that starts with an older one would announce what the manager has withdrawn.
package told
