package compile

import (
	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// FastpathMessage writes f; nil stays nil.
func FastpathMessage(f *model.Fastpath) *weirv1.Fastpath {
	if f == nil {
		return nil
	}
	p := &weirv1.Fastpath{Sources: SourceTexts(f.Sources)}
	if f.UDPPackets != 0 {
		p.UdpPackets = &f.UDPPackets
	}
	return p
}

// fastpath reads what FastpathMessage wrote; an address is the prefix of itself alone.
func (f *Fields) Fastpath(path string, p *weirv1.Fastpath) *model.Fastpath {
	if p == nil {
		return nil
	}
	f.enter(path, -1)
	defer f.leave()
	return &model.Fastpath{Sources: f.Prefixes("sources", p.GetSources()), UDPPackets: p.GetUdpPackets()}
}
