package compile

import (
	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// LimitsMessage writes l; nil stays nil.
func LimitsMessage(l *model.Limits) *weirv1.Limits {
	if l == nil {
		return nil
	}
	return &weirv1.Limits{Packets: l.Packets, Bytes: l.Bytes, Connections: l.Connections}
}

// Limits reads them; nil stays nil.
func Limits(p *weirv1.Limits) *model.Limits {
	if p == nil {
		return nil
	}
	return &model.Limits{Packets: p.GetPackets(), Bytes: p.GetBytes(), Connections: p.GetConnections()}
}
