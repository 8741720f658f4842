package bgp

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// ParsePeer reads "address=10.0.0.1,as=65000,password-file=/etc/weir/bgp,bfd=100ms,evpn=true".
func ParsePeer(text string) (p Peer, err error) {
	for _, field := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(field, "=")
		switch strings.TrimSpace(key) {
		case "address":
			if p.Address, err = netip.ParseAddr(value); err != nil {
				return p, fmt.Errorf("address must be an IP address, is %q", value)
			}
		case "as":
			as, err := strconv.ParseUint(value, 10, 32)
			if err != nil || as == 0 {
				return p, fmt.Errorf("as must be a number from 1 to 4294967295, is %q", value)
			}
			p.AS = uint32(as)
		case "password-file":
			p.PasswordFile = value
		case "bfd":
			if p.BFD, err = time.ParseDuration(value); err != nil || p.BFD <= 0 {
				return p, fmt.Errorf("bfd must be an interval such as 100ms, is %q", value)
			}
		case "evpn":
			if p.EVPN, err = strconv.ParseBool(value); err != nil {
				return p, fmt.Errorf("evpn must be true or false, is %q", value)
			}
		default:
			return p, fmt.Errorf("unknown field %q: fields are address, as, password-file, bfd, evpn", key)
		}
	}
	if !p.Address.IsValid() || p.AS == 0 {
		return p, errors.New("address and as are required")
	}
	return p, nil
}
