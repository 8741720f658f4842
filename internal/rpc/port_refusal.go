package rpc

import (
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
)

// Why a port request is refused: reasons of an ErrorInfo.
const (
	PortsOutstanding = "outstanding" // another request of the workload is under way
	PortsRate        = "rate"        // too many a second
	PortsLimit       = "limit"       // the workload has all that it may
	PortsExhausted   = "exhausted"   // the VIP has none left
	PortsRestored    = "restored"    // the store was restored, and it is not known yet who has which
)

const portsDomain = "ports.weir"

// RefusePorts makes the error of a port request that is refused for a reason, and may be made again after a while.
// Clients do not make it again by themselves.
func RefusePorts(reason string, after time.Duration, err error) *connect.Error {
	refused := RetryAfter(connect.CodeResourceExhausted, err, after)
	if detail, err := connect.NewErrorDetail(&errdetails.ErrorInfo{Reason: reason, Domain: portsDomain}); err == nil {
		refused.AddDetail(detail)
	}
	return refused
}

// PortsRefused says whether err is such a refusal, for which reason, and after what time to ask again.
func PortsRefused(err error) (reason string, after time.Duration, refused bool) {
	var e *connect.Error
	if !errors.As(err, &e) {
		return "", 0, false
	}
	for _, detail := range e.Details() {
		value, err := detail.Value()
		if err != nil {
			continue
		}
		if info, ok := value.(*errdetails.ErrorInfo); ok && info.GetDomain() == portsDomain {
			reason, refused = info.GetReason(), true
		}
	}
	after, _ = retryIn(err)
	return reason, after, refused
}
