// Package snat is the command weir snat: who leaves as a VIP with which ports, and the reclaim of ports.
package snat
