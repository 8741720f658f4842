// Package steered says what a host is told of VIPs that switches hold, and which hosts a change concerns.
package steered
