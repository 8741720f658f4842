package manager

import (
	"context"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// CreateAddressPool creates a pool.
func (m *Manager) CreateAddressPool(context.Context, *weirv1.CreateAddressPoolRequest) (*weirv1.CreateAddressPoolResponse, error) {
	return nil, unwritten("CreateAddressPool")
}

// UpdateAddressPool replaces a pool.
func (m *Manager) UpdateAddressPool(context.Context, *weirv1.UpdateAddressPoolRequest) (*weirv1.UpdateAddressPoolResponse, error) {
	return nil, unwritten("UpdateAddressPool")
}

// ListAddressPools lists pools by name.
func (m *Manager) ListAddressPools(context.Context, *weirv1.ListAddressPoolsRequest) (*weirv1.ListAddressPoolsResponse, error) {
	return nil, unwritten("ListAddressPools")
}

// GetAddressPool returns one pool with its use.
func (m *Manager) GetAddressPool(context.Context, *weirv1.GetAddressPoolRequest) (*weirv1.GetAddressPoolResponse, error) {
	return nil, unwritten("GetAddressPool")
}

// DeleteAddressPool deletes a pool that no VIP has an address of.
func (m *Manager) DeleteAddressPool(context.Context, *weirv1.DeleteAddressPoolRequest) (*weirv1.DeleteAddressPoolResponse, error) {
	return nil, unwritten("DeleteAddressPool")
}
