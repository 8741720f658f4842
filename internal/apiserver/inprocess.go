package apiserver

import (
	"context"
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/clusterservice"
)

// registerREST has the gateway call the services.
func (s *Server) registerREST(gateway *runtime.ServeMux) error {
	p := &inProcess{methods: map[string]inProcessMethod{}, intercept: func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		return s.guarded(ctx, info.FullMethod, request, handle)
	}}
	weirv1.RegisterWeirServiceServer(p, restServer{s.service()})
	weirv1.RegisterClusterServiceServer(p, restCluster{s.Cluster})
	weirv1.RegisterTrustServiceServer(p, s.Trust)
	ctx := context.Background()
	return errors.Join(
		weirv1.RegisterWeirServiceHandlerClient(ctx, gateway, weirv1.NewWeirServiceClient(p)),
		weirv1.RegisterClusterServiceHandlerClient(ctx, gateway, weirv1.NewClusterServiceClient(p)),
		weirv1.RegisterTrustServiceHandlerClient(ctx, gateway, weirv1.NewTrustServiceClient(p)),
	)
}

// inProcess is how REST calls the services: in this process, through one interceptor, so that REST is
// judged as all else is. It is a grpc.ServiceRegistrar and a grpc.ClientConnInterface.
type inProcess struct {
	methods   map[string]inProcessMethod // by procedure
	intercept grpc.UnaryServerInterceptor
}

type inProcessMethod struct {
	handle grpc.MethodHandler
	server any
}

// RegisterService takes the unary calls of a service over.
func (p *inProcess) RegisterService(desc *grpc.ServiceDesc, server any) {
	for _, m := range desc.Methods {
		p.methods["/"+desc.ServiceName+"/"+m.MethodName] = inProcessMethod{handle: m.Handler, server: server}
	}
}

// Invoke makes a unary call.
func (p *inProcess) Invoke(ctx context.Context, procedure string, args, reply any, _ ...grpc.CallOption) error {
	method, there := p.methods[procedure]
	if !there {
		return status.Errorf(codes.Unimplemented, "there is no %s", procedure)
	}
	decode := func(into any) error {
		to, ok1 := into.(proto.Message)
		from, ok2 := args.(proto.Message)
		if !ok1 || !ok2 {
			return fmt.Errorf("call %s: %T is no message", procedure, into)
		}
		proto.Merge(to, from)
		return nil
	}
	answer, err := method.handle(method.server, ctx, decode, p.intercept)
	if err != nil {
		return err
	}
	to, ok1 := reply.(proto.Message)
	from, ok2 := answer.(proto.Message)
	if !ok1 || !ok2 {
		return fmt.Errorf("call %s: %T is no message", procedure, answer)
	}
	proto.Merge(to, from)
	return nil
}

// NewStream refuses: REST has no streams of the gateway's.
func (p *inProcess) NewStream(_ context.Context, _ *grpc.StreamDesc, procedure string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Errorf(codes.Unimplemented, "%s is a stream, which REST does not have", procedure)
}

// restServer is what REST serves: all unary calls.
type restServer struct{ service }

// Capture is a stream, which REST does not have.
func (restServer) Capture(r *weirv1.CaptureRequest, s weirv1.WeirService_CaptureServer) error {
	return weirv1.UnimplementedWeirServiceServer{}.Capture(r, s)
}

// Observe likewise.
func (restServer) Observe(r *weirv1.ObserveRequest, s weirv1.WeirService_ObserveServer) error {
	return weirv1.UnimplementedWeirServiceServer{}.Observe(r, s)
}

// WatchVIPs is served to REST by handleREST.
func (restServer) WatchVIPs(*weirv1.WatchVIPsRequest, weirv1.WeirService_WatchVIPsServer) error {
	return errOnlyStream
}

// WatchEvents is served to REST by handleREST.
func (restServer) WatchEvents(*weirv1.WatchEventsRequest, weirv1.WeirService_WatchEventsServer) error {
	return errOnlyStream
}

// WatchNodes is served to REST by handleREST.
func (restServer) WatchNodes(*weirv1.WatchNodesRequest, weirv1.WeirService_WatchNodesServer) error {
	return errOnlyStream
}

// WatchStatus is served to REST by handleREST.
func (restServer) WatchStatus(*weirv1.WatchStatusRequest, weirv1.WeirService_WatchStatusServer) error {
	return errOnlyStream
}

// WatchRates is served to REST by handleREST.
func (restServer) WatchRates(*weirv1.WatchRatesRequest, weirv1.WeirService_WatchRatesServer) error {
	return errOnlyStream
}

var errOnlyStream = connect.NewError(connect.CodeUnimplemented, errors.New("watches are streams"))

// restCluster is what REST serves of it: all unary calls.
type restCluster struct{ *clusterservice.Service }

// ReadTraffic is a stream, too.
func (restCluster) ReadTraffic(r *weirv1.ReadTrafficRequest, s weirv1.ClusterService_ReadTrafficServer) error {
	return weirv1.UnimplementedClusterServiceServer{}.ReadTraffic(r, s)
}

// FollowProgress is a stream, which REST does not have.
func (restCluster) FollowProgress(r *weirv1.FollowProgressRequest, s weirv1.ClusterService_FollowProgressServer) error {
	return weirv1.UnimplementedClusterServiceServer{}.FollowProgress(r, s)
}

// FollowReports is a stream, which REST does not have.
func (restCluster) FollowReports(r *weirv1.FollowReportsRequest, s weirv1.ClusterService_FollowReportsServer) error {
	return weirv1.UnimplementedClusterServiceServer{}.FollowReports(r, s)
}

// Backup is a stream, which REST does not have.
func (restCluster) Backup(r *weirv1.BackupRequest, s weirv1.ClusterService_BackupServer) error {
	return weirv1.UnimplementedClusterServiceServer{}.Backup(r, s)
}
