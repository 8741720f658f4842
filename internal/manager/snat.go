package manager

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
)

var errNoSNAT = connect.NewError(connect.CodeUnimplemented, errors.New("this manager gives no ports out"))

// AllocatePorts gives a workload more ports of its VIP.
func (m *Manager) AllocatePorts(context.Context, *weirv1.AllocatePortsRequest) (*weirv1.AllocatePortsResponse, error) {
	return nil, errNoSNAT
}

// ReleasePorts takes back what a workload does not use any more.
func (m *Manager) ReleasePorts(context.Context, *weirv1.ReleasePortsRequest) (*weirv1.ReleasePortsResponse, error) {
	return nil, errNoSNAT
}

// GetSNAT says who leaves as a VIP.
func (m *Manager) GetSNAT(context.Context, *weirv1.GetSNATRequest) (*weirv1.GetSNATResponse, error) {
	return nil, errNoSNAT
}

// ReclaimPorts takes ranges back from a workload.
func (m *Manager) ReclaimPorts(context.Context, *weirv1.ReclaimPortsRequest) (*weirv1.ReclaimPortsResponse, error) {
	return nil, errNoSNAT
}
