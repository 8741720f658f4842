// Package snat writes which workload has which port range of which VIP: the tables snat_ranges and snat_owners. A range's
// owner is one word, so that packets see the old one or the new.
package snat
