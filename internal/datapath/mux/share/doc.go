// Package share writes how overload is divided: which VIPs, and which prefixes of their sources, lose which part of their
// packets (the table source_shares, and vip_policers), and reads the sketch of heavy hitters by which sources are found.
package share
