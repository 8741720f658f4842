package mux

import (
	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/datapath/mux/snat"
)

// Names of what facets take and return.
type (
	Settings         = pool.Settings
	Encapsulation    = pool.Encapsulation
	Update           = endpoint.Update
	EndpointSettings = endpoint.Settings
	SYNState         = endpoint.SYNState
	SYNCounter       = endpoint.SYNCounter
	OfferedLoad      = endpoint.OfferedLoad
	FlowUsage        = flow.Usage
	TenantUsage      = flow.TenantUsage
	SNATStatus       = snat.Status
	SNATTunnel       = snat.Tunnel
)

// The kinds of encapsulation.
const (
	IPIP = pool.IPIP
	GUE  = pool.GUE
)
