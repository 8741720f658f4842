//go:build deps

// Package deps is scaffolding while the packages that import these are being written.
package deps

import (
	_ "connectrpc.com/connect"
	_ "github.com/cilium/ebpf"
	_ "github.com/cilium/ebpf/cmd/bpf2go"
	_ "github.com/cilium/ebpf/link"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/gopacket/gopacket"
	_ "github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	_ "github.com/mdlayher/packet"
	_ "github.com/osrg/gobgp/v4/pkg/server"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "github.com/vishvananda/netlink"
	_ "github.com/vishvananda/netns"
	_ "go.etcd.io/etcd/client/v3"
	_ "go.etcd.io/etcd/client/v3/concurrency"
	_ "go.etcd.io/etcd/server/v3/embed"
	_ "go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	_ "go.uber.org/goleak"
	_ "go.yaml.in/yaml/v4"
	_ "golang.org/x/net/http2"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "google.golang.org/genproto/googleapis/rpc/status"
	_ "google.golang.org/grpc"
	_ "pgregory.net/rapid"
)
