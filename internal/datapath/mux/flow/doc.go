// Package flow keeps the accounts of the flow table, which packets write: it frees the cells of flows that expired, counts
// them by VIP and tenant, and divides the table among tenants.
package flow
