// Package networks tries virtual networks end to end in a lab: tenants with equal addresses reach VIPs past the muxes.
package networks
