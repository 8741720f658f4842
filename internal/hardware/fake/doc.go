// Package fake is a switch in memory: for tests of what drives switches. It has the tables and the limits of one, and faults
// are injected from outside: it refuses, it hangs, someone removes an entry by hand, it reboots.
package fake
