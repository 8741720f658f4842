// Package healthcheck runs the health checks of a host's backends from one queue, ordered by time. What a check is stands
// in package probe, when a backend is healthy in package health.
package healthcheck
