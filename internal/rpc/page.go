package rpc

import (
	"context"
	"errors"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// Pages reads a whole list: read returns the page of a token, and the token of the next page, "" after the last. It is an
// error if pages do not go on.
func Pages[T any](read func(token string) ([]T, string, error)) (all []T, err error) {
	for token := ""; ; {
		page, next, err := read(token)
		if err != nil {
			return nil, err
		}
		if all = append(all, page...); next == "" {
			return all, nil
		}
		if next == token {
			return nil, errors.New("the manager names the page that it sent as the next one: is it of another release?")
		}
		token = next
	}
}

// Nodes reads all nodes of a role, or of all roles if it is empty.
func (c *Client) Nodes(ctx context.Context, role model.Role) ([]*weirv1.Node, error) {
	return Pages(func(token string) ([]*weirv1.Node, string, error) {
		response, err := c.ListNodes(ctx, &weirv1.ListNodesRequest{Role: string(role), PageToken: token})
		return response.GetNodes(), response.GetNextPageToken(), err
	})
}

// Status reads the status with all nodes. What is of the whole installation is that of the first page.
func (c *Client) Status(ctx context.Context) (status *weirv1.GetStatusResponse, err error) {
	var hosts []*weirv1.HostBackends
	nodes, err := Pages(func(token string) ([]*weirv1.Node, string, error) {
		response, err := c.GetStatus(ctx, &weirv1.GetStatusRequest{PageToken: token})
		if status == nil {
			status = response
		}
		hosts = append(hosts, response.GetHostBackends()...)
		return response.GetNodes(), response.GetNextPageToken(), err
	})
	if err != nil {
		return nil, err
	}
	status.Nodes, status.HostBackends, status.NextPageToken = nodes, hosts, ""
	return status, nil
}
