// Package trace runs the mux's program for people: it explains what becomes of a packet, captures packets as they come and
// leave, and gives the program packets of user space's own.
package trace
