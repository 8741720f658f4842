package limits

import (
	"sync"

	"google.golang.org/protobuf/reflect/protoreflect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
)

// Request bounds a request of a procedure, or each message of one that streams.
type Request struct {
	Bytes    int // after decompression
	Messages int // in it
	Cost     int // of the tokens that its caller has
}

// Sizes of requests, in bytes, and how many messages they hold.
const (
	small  = 64 << 10
	medium = 1 << 20
	large  = 64 << 20

	join = 8
	few  = 256
	some = 1 << 14
	many = 1 << 18
)

// Unknown is what somebody who is not known may send, in bytes. It is never decompressed.
const Unknown = 16 << 10

// MessageHead is what stands before each message of gRPC, in bytes: whether it is compressed, and its size in four bytes.
const MessageHead = 5

// Large says whether a request may need so much memory that few of its size are taken at once.
func (r Request) Large() bool { return r.Bytes > 4*medium }

// What is large: few requests beyond either are taken at once. Messages count, as one of two bytes on the wire takes some
// hundred in memory.
const (
	LargeBytes    = 1 << 20
	LargeMessages = 1 << 12
)

// MinMessage is what a message in another takes on the wire at least, in bytes. In JSON it is as many.
const MinMessage = 2

// Requests are the bounds of all procedures.
var Requests = map[string]Request{
	weirv1connect.WeirServiceApplyVIPsProcedure:            {large, many, 1},
	weirv1connect.WeirServiceCreateVIPProcedure:            {4 * medium, many, 1},
	weirv1connect.WeirServiceUpdateVIPProcedure:            {4 * medium, many, 1},
	weirv1connect.WeirServicePatchVIPProcedure:             {4 * medium, many, 1},
	weirv1connect.WeirServicePatchBackendsProcedure:        {4 * medium, many, 1},
	weirv1connect.WeirServiceDeleteVIPProcedure:            {small, few, 1},
	weirv1connect.WeirServiceReclaimPortsProcedure:         {small, some, 1},
	weirv1connect.WeirServiceGetSNATProcedure:              {small, few, 2},
	weirv1connect.WeirServiceListVIPsProcedure:             {small, few, 10},
	weirv1connect.WeirServiceGetVIPProcedure:               {small, few, 1},
	weirv1connect.WeirServiceWatchVIPsProcedure:            {small, few, 10},
	weirv1connect.WeirServiceListEventsProcedure:           {small, few, 5},
	weirv1connect.WeirServiceWatchEventsProcedure:          {small, few, 5},
	weirv1connect.WeirServiceExplainProcedure:              {small, few, 10},
	weirv1connect.WeirServiceGetStatusProcedure:            {small, few, 20},
	weirv1connect.WeirServiceListAddressPoolsProcedure:     {small, few, 10},
	weirv1connect.WeirServiceGetAddressPoolProcedure:       {small, few, 2},
	weirv1connect.WeirServiceCreateAddressPoolProcedure:    {medium, some, 1},
	weirv1connect.WeirServiceUpdateAddressPoolProcedure:    {medium, some, 1},
	weirv1connect.WeirServiceDeleteAddressPoolProcedure:    {small, few, 1},
	weirv1connect.WeirServiceListNodesProcedure:            {small, few, 20},
	weirv1connect.WeirServiceGetNodeProcedure:              {small, few, 1},
	weirv1connect.WeirServiceWatchNodesProcedure:           {small, few, 20},
	weirv1connect.WeirServiceWatchStatusProcedure:          {small, few, 20},
	weirv1connect.WeirServiceWatchRatesProcedure:           {small, few, 20},
	weirv1connect.WeirServiceCreatePrefixListProcedure:     {large, many, 10},
	weirv1connect.WeirServiceUpdatePrefixListProcedure:     {large, many, 10},
	weirv1connect.WeirServiceChangePrefixListProcedure:     {large, many, 1},
	weirv1connect.WeirServiceDeletePrefixListProcedure:     {small, few, 1},
	weirv1connect.WeirServiceListPrefixListsProcedure:      {small, few, 10},
	weirv1connect.WeirServiceGetPrefixListProcedure:        {small, few, 10},
	weirv1connect.WeirServiceCreateVirtualNetworkProcedure: {4 * medium, many, 1},
	weirv1connect.WeirServiceUpdateVirtualNetworkProcedure: {4 * medium, many, 1},
	weirv1connect.WeirServicePatchVirtualNetworkProcedure:  {4 * medium, many, 1},
	weirv1connect.WeirServiceDeleteVirtualNetworkProcedure: {small, few, 1},
	weirv1connect.WeirServiceListVirtualNetworksProcedure:  {small, few, 10},
	weirv1connect.WeirServiceGetVirtualNetworkProcedure:    {small, few, 2},
	weirv1connect.WeirServiceUpdateOverlayProcedure:        {small, few, 1},
	weirv1connect.WeirServiceGetOverlayProcedure:           {small, few, 1},
	weirv1connect.WeirServiceDeleteOverlayProcedure:        {small, few, 1},
	weirv1connect.WeirServiceUpdateFabricProcedure:         {large, many, 10},
	weirv1connect.WeirServiceListFabricsProcedure:          {small, few, 10},
	weirv1connect.WeirServiceGetFabricProcedure:            {small, few, 10},
	weirv1connect.WeirServiceDeleteFabricProcedure:         {small, few, 1},
	weirv1connect.WeirServicePlanPlacementProcedure:        {small, few, 100},
	weirv1connect.WeirServiceOptimizePlacementProcedure:    {small, few, 100},
	weirv1connect.WeirServiceExplainPlacementProcedure:     {small, few, 100},
	weirv1connect.WeirServiceDeleteNodeProcedure:           {small, few, 1},
	weirv1connect.WeirServiceDrainSwitchProcedure:          {small, few, 10},
	weirv1connect.WeirServiceUndrainSwitchProcedure:        {small, few, 10},
	weirv1connect.WeirServiceExplainPacketProcedure:        {small, few, 50},
	weirv1connect.WeirServiceExplainPathProcedure:          {small, few, 200},
	weirv1connect.WeirServiceCaptureProcedure:              {small, few, 10},
	weirv1connect.WeirServiceObserveProcedure:              {small, few, 10},
	weirv1connect.WeirServiceListConnectionsProcedure:      {small, few, 10},
	weirv1connect.SyncServiceSyncMuxProcedure:              {8 * medium, some, 10},
	weirv1connect.SyncServiceReportMuxProcedure:            {8 * medium, many, 1},
	weirv1connect.SyncServiceAcknowledgeMuxProcedure:       {small, few, 0},
	weirv1connect.SyncServiceRenewNeighborsProcedure:       {small, few, 1},
	weirv1connect.SyncServiceAnswerTaskProcedure:           {4 * medium, some, 1},
	weirv1connect.SyncServiceSyncHostProcedure:             {medium, few, 10},
	weirv1connect.SyncServiceReportHostProcedure:           {4 * medium, 1 << 17, 1},
	weirv1connect.SyncServiceSyncSwitchProcedure:           {small, few, 10},
	weirv1connect.SyncServiceReportSwitchProcedure:         {4 * medium, 1 << 15, 1},
	weirv1connect.SyncServiceAllocatePortsProcedure:        {1 << 10, few, 0},
	weirv1connect.SyncServiceReleasePortsProcedure:         {small, some, 1},
	weirv1connect.ClusterServiceListManagersProcedure:      {small, few, 5},
	weirv1connect.ClusterServiceDeleteManagerProcedure:     {small, few, 1},
	weirv1connect.ClusterServiceJoinManagerProcedure:       {small, few, 1},
	weirv1connect.ClusterServiceRegisterNodeProcedure:      {medium, some, 1},
	weirv1connect.ClusterServiceGetReplicaProcedure:        {small, few, 1},
	weirv1connect.ClusterServiceFollowProgressProcedure:    {small, few, 1},
	weirv1connect.ClusterServiceFollowReportsProcedure:     {small, few, 1},
	weirv1connect.ClusterServiceReadTrafficProcedure:       {small, few, 20},
	weirv1connect.ClusterServiceBackupProcedure:            {small, few, 100},
	weirv1connect.TrustServiceJoinProcedure:                {Unknown, join, 1},
	weirv1connect.TrustServiceRenewCertificateProcedure:    {small, few, 10},
	weirv1connect.TrustServiceWhoAmIProcedure:              {small, few, 1},
	weirv1connect.TrustServiceCreateTokenProcedure:         {small, few, 1},
	weirv1connect.TrustServiceListTokensProcedure:          {small, few, 5},
	weirv1connect.TrustServiceDeleteTokenProcedure:         {small, few, 1},
	weirv1connect.TrustServiceListPrincipalsProcedure:      {small, few, 5},
	weirv1connect.TrustServiceRevokePrincipalProcedure:     {small, few, 1},
	weirv1connect.TrustServiceCreateUserProcedure:          {medium, some, 1},
	weirv1connect.TrustServiceUpdateUserProcedure:          {medium, some, 1},
	weirv1connect.TrustServiceRotateUserProcedure:          {small, few, 1},
	weirv1connect.TrustServiceListUsersProcedure:           {small, few, 5},
	weirv1connect.TrustServiceDeleteUserProcedure:          {small, few, 1},
	weirv1connect.TrustServiceApplyTenantsProcedure:        {4 * medium, many, 1},
	weirv1connect.TrustServiceListTenantsProcedure:         {small, few, 20},
	weirv1connect.TrustServiceGetTenantProcedure:           {small, few, 5},
	weirv1connect.TrustServiceDeleteTenantProcedure:        {small, few, 1},
	weirv1connect.TrustServiceListAuditProcedure:           {small, few, 10},
}

// Of is the bound of a procedure. One that is not in the table gets the least.
func Of(procedure string) Request {
	if r, there := Requests[procedure]; there {
		return r
	}
	return Request{small, few, 1}
}

// further is what a page costs that goes on where another ended, of lists of which each page does its part of the work
// alone: of all others it costs as much as the first. Who asks for the same page for ever has few enough a second.
var further = map[string]int{
	weirv1connect.WeirServiceGetStatusProcedure: 5,
	weirv1connect.WeirServiceListNodesProcedure: 5,
}

// CostOf is what a request of a procedure costs of the tokens that its caller has.
func CostOf(procedure string, message any) int {
	page, is := message.(interface{ GetPageToken() string })
	if cost, less := further[procedure]; less && is && page.GetPageToken() != "" {
		return cost
	}
	return Of(procedure).Cost
}

// inputs are the messages that procedures take.
var inputs = sync.OnceValue(func() map[string]protoreflect.MessageDescriptor {
	all := map[string]protoreflect.MessageDescriptor{}
	for _, service := range Services() {
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			all["/"+string(service.FullName())+"/"+string(method.Name())] = method.Input()
		}
	}
	return all
})

// InputOf is the message that a procedure takes; nil: there is no such procedure.
func InputOf(procedure string) protoreflect.MessageDescriptor { return inputs()[procedure] }

// Services are those that a manager serves.
func Services() []protoreflect.ServiceDescriptor {
	var all []protoreflect.ServiceDescriptor
	for _, file := range []protoreflect.FileDescriptor{
		weirv1.File_v1_weir_proto, weirv1.File_v1_sync_proto, weirv1.File_v1_cluster_proto, weirv1.File_v1_trust_proto,
	} {
		for i := range file.Services().Len() {
			all = append(all, file.Services().Get(i))
		}
	}
	return all
}
