// Package steered says what hosts are told of VIPs that switches hold, and which hosts a change concerns. A VIP is computed
// once for all of its hosts, and so is its change: there may be hundreds of them.
package steered
