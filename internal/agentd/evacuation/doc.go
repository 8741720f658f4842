// Package evacuation ends the sessions of workloads that leave a host, and has their clients probed, so that their
// connections go on where the workloads are next.
package evacuation
