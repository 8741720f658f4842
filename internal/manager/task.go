package manager

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// restServer is what REST serves: all unary calls.
type restServer struct{ *Manager }

// Capture is a stream, which REST does not have.
func (restServer) Capture(r *weirv1.CaptureRequest, s weirv1.WeirService_CaptureServer) error {
	return weirv1.UnimplementedWeirServiceServer{}.Capture(r, s)
}

var errNoTasks = connect.NewError(connect.CodeUnimplemented, errors.New("muxes take no tasks yet"))

// ExplainPacket runs a packet through the program of one mux.
func (m *Manager) ExplainPacket(context.Context, *weirv1.ExplainPacketRequest) (*weirv1.ExplainPacketResponse, error) {
	return nil, errNoTasks
}

// Capture streams copies of a mux's packets.
func (m *Manager) Capture(context.Context, *weirv1.CaptureRequest, *connect.ServerStream[weirv1.CaptureResponse]) error {
	return errNoTasks
}

// AnswerTask takes a mux's answer.
func (m *Manager) AnswerTask(context.Context, *weirv1.AnswerTaskRequest) (*weirv1.AnswerTaskResponse, error) {
	return nil, errNoTasks
}
