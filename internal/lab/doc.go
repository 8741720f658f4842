// Package lab is the command line of the lab, weir lab: a datacenter of network namespaces on one
// machine, in which the real programs balance real traffic. What is built stands in
// internal/lab/netlab; here are the commands and the demo.
package lab
