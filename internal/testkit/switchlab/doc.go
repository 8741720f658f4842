// Package switchlab is the data path of a switch in three network namespaces, for the cases of package drivertest.
//
//	client ──▶ "client" switch "fabric" ──▶ fabric
//
// Tests send frames from the client's end, and see in the fabric what the switch has made of them.
package switchlab
