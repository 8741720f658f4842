// Package multipath tells homes which tokens of Multipath TCP the workloads of this host have: again and again, and at once when
// homes change. What begins is told by the data plane itself, which is faster.
package multipath
