// Package clusterservice serves ClusterService, which managers call among themselves and operators for the cluster: members,
// status of each replica, registration of nodes at the leader, progress of nodes, and backups of the store.
package clusterservice
