// Package diagnose holds the commands that say how an installation does and why: weir status and top, explain and
// capture of packets, and doctor.
package diagnose
