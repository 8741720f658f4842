package oracle

import "github.com/weirlb/weir/internal/testkit/oracle/inet"

var (
	checksum    = inet.Checksum
	mended      = inet.Mended
	fixedHeader = inet.FixedHeader
	etherType   = inet.EtherType
	ecn         = inet.ECN
	clamp       = inet.Clamp
	pseudo      = inet.Pseudo
	rechecked   = inet.Rechecked
	timestamps  = inet.Timestamps
	isHost      = inet.IsHost
	turn        = inet.Turn
	vxlanAgain  = inet.VXLAN
)
