// Package frr runs a real FRR router in a network namespace: zebra, bgpd and, if asked for, bfdd
// of Debian's package, with sockets and files of their own, so that many routers fit on one
// machine. For tests and the lab only.
//
//	Start ── writes bgpd.conf, zebra.conf, bfdd.conf into Config.Dir
//	      ── sets the namespace's ECMP sysctls
//	      ── zebra -d, bfdd -d, bgpd -d          (their process ids stand in Dir/*.pid)
//	Stop  ── ends them by those ids and removes Dir; works from another process too, by Open
package frr
