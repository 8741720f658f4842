package mux

import (
	"time"

	"github.com/weirlb/weir/internal/model"
)

// flowTick is the unit of time in the flow table, as bpf/abi/mux_flow.h tells it.
const flowTick = time.Duration(1) << 26

// settings is what an endpoint's row says beside its slices, as the tables have it.
type settings struct {
	flags     muxEndpointFlag // those that the control plane decides
	idle      uint32          // ticks
	flowLimit uint32
}

// Settings is what an endpoint's row says beside its buckets and backends.
type Settings struct {
	Cookies     model.Cookies
	Affinity    bool
	Ping        bool
	IdleTimeout time.Duration // rounded up to ticks of 67 ms
	FlowLimit   uint32        // cells of the flow table that trusted flows of the VIP may have
}

const settingFlags = muxEndpointFlagENDPOINT_COOKIES | muxEndpointFlagENDPOINT_SETTLING |
	muxEndpointFlagENDPOINT_AFFINITY | muxEndpointFlagENDPOINT_PING

func (d *Datapath) settingsOf(e model.MuxEndpoint) settings {
	s := settings{idle: toTicks(e.IdleTimeout), flowLimit: e.FlowLimit}
	if e.IdleTimeout == 0 {
		s.idle = toTicks(model.Endpoint{Protocol: e.Key.Protocol}.Idle())
	}
	if s.flowLimit == 0 {
		s.flowLimit = d.flowLimit
	}
	if e.Key.Protocol == model.TCP {
		switch e.Cookies {
		case model.CookiesSettling:
			s.flags |= muxEndpointFlagENDPOINT_COOKIES | muxEndpointFlagENDPOINT_SETTLING
		case model.CookiesOn:
			s.flags |= muxEndpointFlagENDPOINT_COOKIES
		}
	}
	if e.Affinity {
		s.flags |= muxEndpointFlagENDPOINT_AFFINITY
	}
	if e.Ping {
		s.flags |= muxEndpointFlagENDPOINT_PING
	}
	return s
}

// toTicks rounds up; what is longer than the clock's ticks can tell apart is as good as for ever.
func toTicks(d time.Duration) uint32 {
	const most = 1 << 29
	return uint32(min((d+flowTick-1)/flowTick, most))
}

// write puts the settings into the row, and leaves the rest of it.
func (s settings) write(row *muxEndpoint) {
	row.Flags = row.Flags&^settingFlags | s.flags
	row.Idle, row.FlowLimit = s.idle, s.flowLimit
}

func readSettings(row muxEndpoint) settings {
	return settings{flags: row.Flags & settingFlags, idle: row.Idle, flowLimit: row.FlowLimit}
}

func (s settings) settings() Settings {
	told := Settings{
		Cookies:     model.CookiesOff,
		Affinity:    s.flags&muxEndpointFlagENDPOINT_AFFINITY != 0,
		Ping:        s.flags&muxEndpointFlagENDPOINT_PING != 0,
		IdleTimeout: time.Duration(s.idle) * flowTick,
		FlowLimit:   s.flowLimit,
	}
	switch {
	case s.flags&muxEndpointFlagENDPOINT_SETTLING != 0:
		told.Cookies = model.CookiesSettling
	case s.flags&muxEndpointFlagENDPOINT_COOKIES != 0:
		told.Cookies = model.CookiesOn
	}
	return told
}
