// Package nexthop writes where frames for tunnels go, the table next_hops, and counts which tunnels there are.
package nexthop
