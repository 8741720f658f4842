// Package acl writes which sources may reach which endpoints: the tables sources, source_sets, source_names and acls. A
// list is filled before an endpoint's row of acls names it, and deleted once no packet can read it any more; prefix lists,
// which many endpoints name, change in place.
package acl
