// Package tenant numbers the tenants of a host's VIPs for the programs, in the table vip_tenants, and divides
// tables among them.
package tenant
