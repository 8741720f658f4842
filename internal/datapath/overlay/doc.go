// Package overlay keeps the sessions of virtual networks' clients with servers of this host: the table that
// bpf/overlay/table.h describes, mapped into memory, and what frees its rows (NGLB, sections IV-B and V).
package overlay
