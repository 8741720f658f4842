package endpoint

import (
	"time"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// settings is what an endpoint's row says beside its slices, as the tables have it.
type settings struct {
	flags     bpf.MuxEndpointFlag // those that the control plane decides
	idle      uint32              // ticks
	flowLimit uint32
	packets   uint32       // of UDP, until a flow may leave the muxes
	limits    model.Limits // of the VIP; unknown of adopted tables
}

// Settings is what an endpoint's row says beside its buckets and backends.
type Settings struct {
	Cookies     model.Cookies
	Affinity    bool
	Ping        bool
	IdleTimeout time.Duration // rounded up to ticks of the flow table
	FlowLimit   uint32        // cells of the flow table that trusted flows of the VIP may have
}

const settingFlags = bpf.MuxEndpointFlagENDPOINT_COOKIES | bpf.MuxEndpointFlagENDPOINT_COOKIES_WARMING |
	bpf.MuxEndpointFlagENDPOINT_AFFINITY | bpf.MuxEndpointFlagENDPOINT_PING | bpf.MuxEndpointFlagENDPOINT_FASTPATH |
	bpf.MuxEndpointFlagENDPOINT_SOURCES | bpf.MuxEndpointFlagENDPOINT_LIMITED |
	bpf.MuxEndpointFlagENDPOINT_HARDWARE | bpf.MuxEndpointFlagENDPOINT_MULTIPATH | synFlags

func (t *Table) settingsOf(e model.MuxEndpoint) settings {
	s := settings{idle: toTicks(e.IdleTimeout, t.tick), flowLimit: e.FlowLimit}
	if e.IdleTimeout == 0 {
		s.idle = toTicks(model.Endpoint{Protocol: e.Key.Protocol}.Idle(), t.tick)
	}
	if s.flowLimit == 0 {
		s.flowLimit = t.Flows.Limit()
	}
	if e.Key.Protocol == model.TCP {
		switch e.Cookies {
		case model.CookiesSettling:
			s.flags |= bpf.MuxEndpointFlagENDPOINT_COOKIES | bpf.MuxEndpointFlagENDPOINT_COOKIES_WARMING
		case model.CookiesOn:
			s.flags |= bpf.MuxEndpointFlagENDPOINT_COOKIES
		}
	}
	if e.Affinity {
		s.flags |= bpf.MuxEndpointFlagENDPOINT_AFFINITY
	}
	if e.Ping {
		s.flags |= bpf.MuxEndpointFlagENDPOINT_PING
	}
	if e.Multipath && e.Key.Protocol == model.TCP {
		s.flags |= bpf.MuxEndpointFlagENDPOINT_MULTIPATH
	}
	if e.Hardware {
		s.flags |= bpf.MuxEndpointFlagENDPOINT_HARDWARE
	}
	if len(e.Allow)+len(e.Deny)+len(e.AllowLists)+len(e.DenyLists) > 0 {
		s.flags |= bpf.MuxEndpointFlagENDPOINT_SOURCES
	}
	if e.Limits != nil {
		s.flags |= bpf.MuxEndpointFlagENDPOINT_LIMITED
		s.limits = *e.Limits
	}
	if e.Fastpath != nil {
		s.flags |= bpf.MuxEndpointFlagENDPOINT_FASTPATH
		s.packets = e.Fastpath.UDPPackets
	}
	s.flags |= t.synFlags(e)
	return s
}

// toTicks rounds up; what is longer than the clock's ticks can tell apart is as good as for ever.
func toTicks(d, tick time.Duration) uint32 {
	const most = 1 << 29
	return uint32(min((d+tick-1)/tick, most))
}

// write puts the settings into the row, and leaves the rest of it.
func (s settings) write(row *bpf.MuxEndpoint) {
	row.Flags = row.Flags&^settingFlags | s.flags
	row.Idle, row.FlowLimit, row.UdpPackets = s.idle, s.flowLimit, s.packets
}

func readSettings(row bpf.MuxEndpoint) settings {
	return settings{flags: row.Flags & settingFlags, idle: row.Idle, flowLimit: row.FlowLimit, packets: row.UdpPackets}
}

func (s settings) exported(tick time.Duration) Settings {
	told := Settings{
		Cookies:     model.CookiesOff,
		Affinity:    s.flags&bpf.MuxEndpointFlagENDPOINT_AFFINITY != 0,
		Ping:        s.flags&bpf.MuxEndpointFlagENDPOINT_PING != 0,
		IdleTimeout: time.Duration(s.idle) * tick,
		FlowLimit:   s.flowLimit,
	}
	switch {
	case s.flags&bpf.MuxEndpointFlagENDPOINT_COOKIES_WARMING != 0:
		told.Cookies = model.CookiesSettling
	case s.flags&bpf.MuxEndpointFlagENDPOINT_COOKIES != 0:
		told.Cookies = model.CookiesOn
	}
	return told
}

// ReadSettings is what the row says of them.
func ReadSettings(row bpf.MuxEndpoint, tick time.Duration) Settings {
	return readSettings(row).exported(tick)
}
