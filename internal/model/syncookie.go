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

// NextSYNSecrets are the secrets that follow; nil: those that there are will do. The newest is known for a
// whole life before it makes a cookie, and the oldest was the last that did.
func NextSYNSecrets(secrets []SYNSecret, now time.Time, life time.Duration, draw func() [16]byte) []SYNSecret {
	if len(secrets) >= 2 && now.Sub(secrets[len(secrets)-1].Made) < life {
		return nil
	}
	next := append([]SYNSecret(nil), secrets...)
	for added := false; !added || len(next) < 2; added = true {
		secret := SYNSecret{ID: 1, Made: now.UTC().Truncate(time.Second), Secret: draw()}
		if len(next) > 0 {
			secret.ID = next[len(next)-1].ID + 1
		}
		next = append(next, secret)
	}
	return next[max(0, len(next)-SYNSecrets):]
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
