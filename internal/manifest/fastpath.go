package manifest

import (
	"net/netip"

	"github.com/weirlb/weir/internal/model"
)

type fastpathSpec struct {
	Sources    []netip.Prefix `json:"sources"`
	UDPPackets uint32         `json:"udpPackets,omitempty"`
}

// fastpath reads which connections leave the muxes; nil: none do.
func fastpath(o *object) *model.Fastpath {
	if o.fields == nil {
		return nil
	}
	f := &model.Fastpath{UDPPackets: uint32(o.get("udpPackets").number(0, model.MaxUDPPackets, 0))}
	for _, source := range o.get("sources").required().list() {
		f.Sources = append(f.Sources, source.prefix())
	}
	o.end()
	return f
}
