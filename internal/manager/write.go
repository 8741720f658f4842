package manager

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
)

func unwritten(call string) error {
	return connect.NewError(connect.CodeUnimplemented, errors.New(call+" is not there yet"))
}

// CreateVIP creates a VIP.
func (m *Manager) CreateVIP(context.Context, *weirv1.CreateVIPRequest) (*weirv1.CreateVIPResponse, error) {
	return nil, unwritten("CreateVIP")
}

// UpdateVIP replaces a VIP.
func (m *Manager) UpdateVIP(context.Context, *weirv1.UpdateVIPRequest) (*weirv1.UpdateVIPResponse, error) {
	return nil, unwritten("UpdateVIP")
}

// PatchVIP changes fields of a VIP.
func (m *Manager) PatchVIP(context.Context, *weirv1.PatchVIPRequest) (*weirv1.PatchVIPResponse, error) {
	return nil, unwritten("PatchVIP")
}
