package overlay

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// Status is what pinned tables hold of virtual networks.
type Status struct {
	Addresses   []netip.Addr // that VXLAN comes to
	Attachments []AttachmentStatus
}

// AttachmentStatus is a VIP of a network, and what was forwarded for it.
type AttachmentStatus struct {
	Attachment

	Counter model.Counter
}

// ReadStatus reads it; attachments are in order of networks.
func ReadStatus(t *bpf.Tables) (s Status, err error) {
	v4, v6, err := readAddresses(t)
	if err != nil {
		return s, err
	}
	for _, address := range []netip.Addr{v4, v6} {
		if address.IsValid() {
			s.Addresses = append(s.Addresses, address)
		}
	}
	attachments, err := readAttachments(t)
	if err != nil {
		return s, err
	}
	for number, a := range attachments {
		counter, err := abi.Counter(t.NetworkCounts, number)
		if err != nil {
			return s, fmt.Errorf("read counter of attachment %d: %w", number, err)
		}
		s.Attachments = append(s.Attachments, AttachmentStatus{a, counter})
	}
	slices.SortFunc(s.Attachments, func(a, b AttachmentStatus) int {
		return cmp.Or(cmp.Compare(a.VNI, b.VNI), a.VIP.Compare(b.VIP))
	})
	return s, nil
}
