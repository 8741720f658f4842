package model

import (
	"fmt"
	"time"
)

// SYNCookies says when muxes answer an endpoint's SYNs themselves, so that a flood of them reaches no
// backend.
type SYNCookies string

// The modes. The empty string means SYNCookiesAuto.
const (
	SYNCookiesAuto   SYNCookies = "auto" // while the endpoint is flooded, which each mux finds out itself
	SYNCookiesAlways SYNCookies = "always"
	SYNCookiesNever  SYNCookies = "never"
)

// WhenSYNCookies is SYNCookies or its default. What is not of TCP has no SYN.
func (e Endpoint) WhenSYNCookies() SYNCookies {
	switch {
	case e.Protocol != TCP:
		return SYNCookiesNever
	case e.SYNCookies == "":
		return SYNCookiesAuto
	}
	return e.SYNCookies
}

// SYNSecrets is how many secrets are valid at a time: the one before, that which makes cookies, and the
// one that will, which all know before it does.
const SYNSecrets = 3

// SYNSecret makes and checks SYN cookies.
type SYNSecret struct {
	ID     uint32 // grows with each secret; 0 is invalid
	Made   time.Time
	Secret [16]byte
}

// String does not tell the secret.
func (s SYNSecret) String() string { return fmt.Sprintf("syn secret %d", s.ID) }

// MakesSYNCookies is the one of the valid secrets, in order, that makes cookies: the last but one, or all
// that there is. It is none of no secrets.
func MakesSYNCookies(secrets []SYNSecret) SYNSecret {
	switch n := len(secrets); n {
	case 0:
		return SYNSecret{}
	case 1:
		return secrets[0]
	default:
		return secrets[n-2]
	}
}

// validateSYNCookies holds that the mode is one, and of TCP.
func (e Endpoint) validateSYNCookies(v *validator, path string) {
	switch e.SYNCookies {
	case "", SYNCookiesAuto, SYNCookiesAlways, SYNCookiesNever:
	default:
		v.refuse(path, "must be auto, always or never, is %q", e.SYNCookies)
	}
	if e.Protocol == UDP && e.SYNCookies != "" && e.SYNCookies != SYNCookiesNever {
		v.refuse(path, "is for TCP: UDP has no SYN")
	}
}
