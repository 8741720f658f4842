package vnet

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// MAC is an Ethernet address. The zero value is none.
type MAC [6]byte

// ParseMAC reads "02:57:45:49:52:01".
func ParseMAC(s string) (MAC, error) {
	var m MAC
	bytes := strings.Split(s, ":")
	wrong := len(bytes) != len(m)
	for i := 0; i < len(m) && !wrong; i++ {
		n, err := hex.Decode(m[i:i+1], []byte(bytes[i]))
		wrong = err != nil || n != 1
	}
	if wrong {
		return MAC{}, fmt.Errorf("must be an Ethernet address such as %s, is %.64q", DefaultGatewayMAC, s)
	}
	return m, nil
}

// String is "02:57:45:49:52:01".
func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// mac holds that m is one that an interface may have.
func (r *refusals) mac(field string, m MAC) {
	switch {
	case m == MAC{}:
		r.refuse(field, "is required")
	case m[0]&1 != 0:
		r.refuse(field, "must be unicast, is %s", m)
	}
}
