// Package viprow writes the rows of VIPs in the table endpoints, and the index by which packets find rows without a hash
// lookup: the tables endpoint_index and endpoint_rows.
package viprow
