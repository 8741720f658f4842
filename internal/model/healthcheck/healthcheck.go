// Package healthcheck is how the agent decides whether a backend is healthy, and what such a check must be. Layer 0, as
// package model, which has its types under names of its own.
package healthcheck

import (
	"bytes"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// HealthCheck says how the agent decides whether a backend is healthy.
type HealthCheck struct {
	Type     Type
	Port     uint16        // 0: the backend's port
	Path     string        // HTTP and HTTPS only: the request's path; 2xx and 3xx are healthy
	Host     string        // HTTP, HTTPS and gRPC only: Host header or authority; empty: the VIP's address
	TLS      TLS           // HTTPS and gRPC only
	Service  string        // gRPC only: whose health is asked for; empty: the server's
	Send     string        // UDP only: the datagram, as Payload reads it
	Expect   string        // UDP only: what an answer contains, likewise
	Interval time.Duration // between the starts of two checks
	Timeout  time.Duration // of one check; at most Interval
	Rise     uint32        // successes in a row until healthy
	Fall     uint32        // failures in a row until unhealthy

	AnswerOptional bool // UDP only: without an answer it suffices that no ICMP error comes
}

// TLS says how a health check speaks TLS.
type TLS struct {
	On         bool
	ServerName string // of the certificate, and sent as SNI; empty: the check's host without its port
	CA         string // PEM of who must have issued the certificate, or SystemCA; empty: any certificate is taken
}

// SystemCA stands for whom the host's machine trusts.
const SystemCA = "system"

// Type is the protocol of a health check.
type Type string

// The kinds of health check.
const (
	TCP   Type = "tcp"   // the connection opens
	HTTP  Type = "http"  // GET answers 2xx or 3xx
	HTTPS Type = "https" // likewise, over TLS
	GRPC  Type = "grpc"  // grpc.health.v1.Health answers SERVING
	UDP   Type = "udp"   // a datagram is answered, or not refused
)

// Problem is what is wrong with a field, by its path.
type Problem struct{ Field, Reason string }

// Problems are all that is wrong with a check.
type Problems []Problem

func (p *Problems) refuse(field, format string, args ...any) {
	*p = append(*p, Problem{field, fmt.Sprintf(format, args...)})
}

// Problems are all that is wrong with the check, below path.
func (c HealthCheck) Problems(path string) Problems {
	var p Problems
	c.validate(&p, path)
	return p
}

func (c HealthCheck) validate(v *Problems, path string) {
	kinds := HealthCheck{Type: c.Type} // with what checks of that type alone have
	switch c.Type {
	case TCP:
	case HTTP, HTTPS:
		kinds.Path, kinds.Host = c.Path, c.Host
		if reason := checkPath(c.Path); reason != "" {
			v.refuse(path+"."+string(c.Type)+".path", "%s", reason)
		}
	case GRPC:
		kinds.Host, kinds.Service = c.Host, c.Service
		if len(c.Service) > maxCheckService || strings.ContainsFunc(c.Service, func(r rune) bool { return r <= ' ' || r > '~' }) {
			v.refuse(path+".grpc.service", "must be printable ASCII without spaces, of at most %d bytes, is %.64q", maxCheckService, c.Service)
		}
	case UDP:
		kinds.Send, kinds.Expect, kinds.AnswerOptional = c.Send, c.Expect, c.AnswerOptional
		if _, reason := Payload(c.Send); reason != "" {
			v.refuse(path+".udp.send", "%s", reason)
		}
		if _, reason := Payload(c.Expect); reason != "" {
			v.refuse(path+".udp.expect", "%s", reason)
		}
	default:
		v.refuse(path, "must say how: tcp, http, https, grpc or udp")
		kinds = c
	}
	if c.Host != "" && !checkHost.MatchString(c.Host) {
		v.refuse(path+"."+string(c.Type)+".host", "must be a name or an address, with a port or without, of at most %d bytes, is %.64q", maxCheckHost, c.Host)
	}
	if c.TLS.On {
		kinds.TLS = c.TLS
		c.TLS.validate(v, path+"."+string(c.Type)+".tls")
	}
	if c.TLS.On != (c.Type == HTTPS) && c.Type != GRPC {
		v.refuse(path, "TLS is for https and grpc checks only, and https checks have it")
	}
	kinds.Port, kinds.Interval, kinds.Timeout, kinds.Rise, kinds.Fall = c.Port, c.Interval, c.Timeout, c.Rise, c.Fall
	if kinds != c {
		v.refuse(path, "has what is for another type of check than %s", c.Type)
	}
	c.validateTimes(v, path)
}

// validate holds that what a check verifies by can be read.
func (t TLS) validate(v *Problems, path string) {
	if t.ServerName != "" && !checkName.MatchString(t.ServerName) {
		v.refuse(path+".serverName", "must be a name or an address, is %.64q", t.ServerName)
	}
	if t.CA == "" || t.CA == SystemCA {
		return
	}
	if reason := checkCA(t.CA); reason != "" {
		v.refuse(path+".ca", "%s", reason)
	}
}

// checkCA says what is wrong with the certificates of authorities, or nothing. Each backend's host gets them with each
// backend.
func checkCA(text string) (reason string) {
	if len(text) > maxCheckCA {
		return fmt.Sprintf("must be at most %d bytes, is %d: name the authorities that sign servers alone", maxCheckCA, len(text))
	}
	found := false
	for rest := []byte(text); ; found = true {
		block, left := pem.Decode(rest)
		switch {
		case block == nil && len(bytes.TrimSpace(rest)) > 0, block == nil && !found:
			return `must be certificates in PEM, or "system"`
		case block == nil:
			return ""
		case block.Type != "CERTIFICATE": // no key belongs here: nodes and viewers read it
			return fmt.Sprintf("must be certificates alone, has a %.64q", block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return "has a certificate that can't be read"
		}
		rest = left
	}
}

// Payload reads what a check sends or expects by UDP: a text, or bytes as "hex:00ff". It says what is wrong, or nothing.
func Payload(s string) (payload []byte, reason string) {
	digits, isHex := strings.CutPrefix(s, "hex:")
	payload = []byte(s)
	if isHex {
		var err error
		if payload, err = hex.DecodeString(strings.ReplaceAll(digits, " ", "")); err != nil {
			return nil, fmt.Sprintf("must have an even number of hexadecimal digits behind hex:, is %.64q", s)
		}
	}
	if len(payload) > maxCheckPayload {
		return nil, fmt.Sprintf("must be at most %d bytes, is %d", maxCheckPayload, len(payload))
	}
	return payload, ""
}

func (c HealthCheck) validateTimes(v *Problems, path string) {
	if c.TLS.On && c.Interval > 0 && c.Interval < minTLSInterval {
		v.refuse(path+".interval", "must be at least %s with TLS, whose handshakes cost both ends, is %s", minTLSInterval, c.Interval)
	}
	if c.Interval <= 0 {
		v.refuse(path+".interval", "must be positive, is %s", c.Interval)
	}
	if c.Timeout <= 0 || c.Timeout > c.Interval {
		v.refuse(path+".timeout", "must be positive and at most the interval (%s), is %s", c.Interval, c.Timeout)
	}
	if c.Rise < 1 || c.Rise > MaxCount {
		v.refuse(path+".rise", "must be 1 to %d, is %d", MaxCount, c.Rise)
	}
	if c.Fall < 1 || c.Fall > MaxCount {
		v.refuse(path+".fall", "must be 1 to %d, is %d", MaxCount, c.Fall)
	}
}

// MaxCount bounds HealthCheck.Rise and HealthCheck.Fall.
const MaxCount = 1000

// Bounds of what a health check sends, and of what it verifies by, in bytes.
const (
	maxCheckPath    = 1024
	maxCheckHost    = 259 // a DNS name with a port
	maxCheckService = 256
	maxCheckCA      = 4096
	maxCheckPayload = 512 // of a datagram, which travels whole
)

// minTLSInterval is how often a backend is asked with TLS at most.
const minTLSInterval = 500 * time.Millisecond

// checkName is a name, or an address without brackets.
var checkName = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9.])?|[0-9A-Fa-f:.]{2,45})$`)

// checkHost is what a Host header may be (RFC 9110, section 7.2): a name, an IPv4 address or an IPv6 one in brackets, and a port.
var checkHost = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9.])?|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?$`)

// checkPath says what is wrong with the path of a check, which goes into a request line, or nothing.
func checkPath(s string) (reason string) {
	switch {
	case !strings.HasPrefix(s, "/"):
		return fmt.Sprintf("must begin with /, is %.64q", s)
	case len(s) > maxCheckPath:
		return fmt.Sprintf("must be at most %d bytes, is %d", maxCheckPath, len(s))
	case strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '#' }):
		return fmt.Sprintf("must be printable ASCII without spaces and #: escape the rest, is %.64q", s)
	}
	return ""
}
