package ctl

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
)

// completeTime bounds a call that answers a press of the tab key.
const completeTime = time.Second

// completion lists names that an argument may be.
type completion func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective)

// complete asks the manager for names; most bounds the arguments that get any.
func (s *session) complete(most int, list func(context.Context, *rpc.Client) ([]string, error)) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		client, err := s.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer client.Close()
		parent := cmd.Context()
		if parent == nil {
			parent = context.Background()
		}
		ctx, cancel := context.WithTimeout(parent, completeTime)
		defer cancel()
		names, err := list(ctx, client)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func vipNames(ctx context.Context, client *rpc.Client) ([]string, error) {
	vips, err := listVIPs(ctx, client, &weirv1.ListVIPsRequest{})
	var names []string
	for _, vip := range vips {
		names = append(names, vip.GetName()+"\t"+vip.GetAddress())
	}
	return names, err
}

func nodeNames(ctx context.Context, client *rpc.Client) ([]string, error) {
	response, err := client.ListNodes(ctx, &weirv1.ListNodesRequest{})
	var names []string
	for _, node := range response.GetNodes() {
		names = append(names, node.GetName()+"\t"+node.GetRole())
	}
	return names, err
}
