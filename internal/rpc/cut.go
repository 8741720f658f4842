package rpc

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/limits"
)

// cutting cuts what a node reports to the bounds that a manager refuses it beyond: a report with half of a reason says
// more than none.
func cutting(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		switch request.Spec().Procedure {
		case weirv1connect.SyncServiceReportMuxProcedure, weirv1connect.SyncServiceReportHostProcedure,
			weirv1connect.SyncServiceReportSwitchProcedure, weirv1connect.SyncServiceAnswerTaskProcedure:
			if m, ok := request.Any().(proto.Message); ok {
				limits.Cut(m)
			}
		}
		return next(ctx, request)
	}
}
