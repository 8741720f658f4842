package mux

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/datapath/mux/overlay"
	"github.com/weirlb/weir/internal/model"
)

// isNAT says whether an address is one that full NAT gives clients.
func isNAT(a netip.Addr) bool { return natPrefix4.Contains(a) || natPrefix6.Contains(a) }

// isNATBackend says whether full NAT has a backend at an address.
func isNATBackend(a netip.Addr) bool {
	for _, b := range oracleNATSlots() {
		if b.Address.Addr() == a {
			return true
		}
	}
	return false
}

// payload is what a segment carries; false: it is none.
func payload(h ipHeader) ([]byte, bool) {
	if h.protocol != byte(model.TCP) || len(h.behind) < 20 || len(h.behind) < int(h.behind[12]>>4)*4 {
		return nil, false
	}
	return h.behind[h.behind[12]>>4*4:], true
}

// mayCome says whether a host speaks for a network.
func mayCome(vni uint32, host netip.Addr) bool {
	return slices.ContainsFunc(oracleHosts, func(h overlay.Host) bool { return slices.Contains(h.Addresses, host) && slices.Contains(h.VNIs, vni) })
}

// natted says what is wrong with a segment that full NAT sends to a backend.
func natted(out ipHeader, frame []byte) error {
	in, err := readHeader(readIP(frame))
	if err != nil || len(in.behind) < 30 {
		return errors.New("full NAT of what is not in VXLAN")
	}
	inner, err := readHeader(in.behind[30:])
	if err != nil {
		return err
	}
	carried, ok := payload(out)
	vni := binary.BigEndian.Uint32(in.behind[12:]) >> 8
	switch {
	case !ok || !bytes.HasSuffix(frame, carried):
		return errors.New("the payload was changed, or is of no segment")
	case !isNATBackend(out.to):
		return fmt.Errorf("full NAT to %s, which is no backend", out.to)
	case !mayCome(vni, in.from) || isMartian(inner.from):
		return fmt.Errorf("full NAT of %s in network %d, from %s", inner.from, vni, in.from)
	}
	for _, a := range oracleAttachments {
		if a.VNI == vni && a.VIP == inner.to && a.NAT {
			return nil
		}
	}
	return fmt.Errorf("full NAT of what is for %s in network %d", inner.to, vni)
}

// natAnswered says what is wrong with a backend's answer to a client of full NAT.
func natAnswered(out, in ipHeader) error {
	if len(out.behind) < 30 || out.from != overlay4 && out.from != overlay6 {
		return fmt.Errorf("an answer of full NAT from %s", out.from)
	}
	inner, err := readHeader(out.behind[30:])
	if err != nil {
		return err
	}
	said, ok := payload(in)
	carried, is := payload(inner)
	vni := binary.BigEndian.Uint32(out.behind[12:]) >> 8
	switch {
	case !ok || !is || !bytes.HasPrefix(said, carried): // Ethernet's padding may follow
		return errors.New("the payload was changed, or is of no segment")
	case !isNATBackend(in.from):
		return fmt.Errorf("%s, which is no backend, answers", in.from)
	case !mayCome(vni, out.to):
		return fmt.Errorf("an answer in network %d to %s", vni, out.to)
	}
	for _, a := range oracleAttachments {
		if a.VNI == vni && a.VIP == inner.from && a.NAT {
			return nil
		}
	}
	return fmt.Errorf("%s answers in network %d", inner.from, vni)
}
