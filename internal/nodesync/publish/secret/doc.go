// Package secret says which of the pool's secrets a host needs, so that one that is compromised has no others.
package secret
