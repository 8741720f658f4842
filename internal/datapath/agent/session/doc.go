// Package session lists, counts and ends the sessions that clients have with workloads, which packets make: by timeouts,
// by quotas that tenants' VIPs divide, and when a workload leaves the host. It asks workloads whether they have a
// connection by keepalive probes.
package session
