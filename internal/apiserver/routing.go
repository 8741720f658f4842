package apiserver

import (
	"github.com/weirlb/weir/api/v1/weirv1connect"
)

// place says which manager carries a call out.
type place int

const (
	// anyReads calls write nothing that is of the cluster.
	anyReads place = iota + 1
	// byLeader calls write: they are handed on to the leader. By REST those are all that are no GET.
	byLeader
	// ownWrites are of the manager that got them: what its streams bring, and what its caller can't be handed on
	// for. The store holds each of these writes to what it was decided on.
	ownWrites
)

// handling says so of all procedures.
var handling = map[string]place{
	weirv1connect.WeirServiceApplyVIPsProcedure:            byLeader,
	weirv1connect.WeirServiceCreateVIPProcedure:            byLeader,
	weirv1connect.WeirServiceUpdateVIPProcedure:            byLeader,
	weirv1connect.WeirServicePatchVIPProcedure:             byLeader,
	weirv1connect.WeirServicePatchBackendsProcedure:        byLeader,
	weirv1connect.WeirServiceDeleteVIPProcedure:            byLeader,
	weirv1connect.WeirServiceCreateAddressPoolProcedure:    byLeader,
	weirv1connect.WeirServiceUpdateAddressPoolProcedure:    byLeader,
	weirv1connect.WeirServiceDeleteAddressPoolProcedure:    byLeader,
	weirv1connect.WeirServiceCreatePrefixListProcedure:     byLeader,
	weirv1connect.WeirServiceUpdatePrefixListProcedure:     byLeader,
	weirv1connect.WeirServiceChangePrefixListProcedure:     byLeader,
	weirv1connect.WeirServiceDeletePrefixListProcedure:     byLeader,
	weirv1connect.WeirServiceListPrefixListsProcedure:      anyReads,
	weirv1connect.WeirServiceGetPrefixListProcedure:        anyReads,
	weirv1connect.WeirServiceCreateVirtualNetworkProcedure: byLeader,
	weirv1connect.WeirServiceUpdateVirtualNetworkProcedure: byLeader,
	weirv1connect.WeirServicePatchVirtualNetworkProcedure:  byLeader,
	weirv1connect.WeirServiceDeleteVirtualNetworkProcedure: byLeader,
	weirv1connect.WeirServiceListVirtualNetworksProcedure:  anyReads,
	weirv1connect.WeirServiceGetVirtualNetworkProcedure:    anyReads,
	weirv1connect.WeirServiceUpdateOverlayProcedure:        byLeader,
	weirv1connect.WeirServiceGetOverlayProcedure:           anyReads,
	weirv1connect.WeirServiceDeleteOverlayProcedure:        byLeader,
	weirv1connect.WeirServiceUpdateFabricProcedure:         byLeader,
	weirv1connect.WeirServiceListFabricsProcedure:          anyReads,
	weirv1connect.WeirServiceGetFabricProcedure:            anyReads,
	weirv1connect.WeirServiceDeleteFabricProcedure:         byLeader,
	weirv1connect.WeirServicePlanPlacementProcedure:        byLeader,
	weirv1connect.WeirServiceOptimizePlacementProcedure:    byLeader,
	weirv1connect.WeirServiceExplainPlacementProcedure:     byLeader,
	weirv1connect.WeirServiceDeleteNodeProcedure:           byLeader,
	weirv1connect.WeirServiceDrainSwitchProcedure:          byLeader,
	weirv1connect.WeirServiceUndrainSwitchProcedure:        byLeader,
	weirv1connect.WeirServiceReclaimPortsProcedure:         byLeader,
	weirv1connect.WeirServiceGetSNATProcedure:              anyReads,
	weirv1connect.WeirServiceListVIPsProcedure:             anyReads,
	weirv1connect.WeirServiceGetVIPProcedure:               anyReads,
	weirv1connect.WeirServiceWatchVIPsProcedure:            anyReads,
	weirv1connect.WeirServiceListEventsProcedure:           anyReads,
	weirv1connect.WeirServiceWatchEventsProcedure:          anyReads,
	weirv1connect.WeirServiceExplainProcedure:              anyReads,
	weirv1connect.WeirServiceGetStatusProcedure:            anyReads,
	weirv1connect.WeirServiceListAddressPoolsProcedure:     anyReads,
	weirv1connect.WeirServiceGetAddressPoolProcedure:       anyReads,
	weirv1connect.WeirServiceListNodesProcedure:            anyReads,
	weirv1connect.WeirServiceGetNodeProcedure:              anyReads,
	weirv1connect.WeirServiceWatchNodesProcedure:           anyReads,
	weirv1connect.WeirServiceWatchStatusProcedure:          anyReads,
	weirv1connect.WeirServiceWatchRatesProcedure:           anyReads,
	weirv1connect.WeirServiceExplainPacketProcedure:        anyReads,
	weirv1connect.WeirServiceExplainPathProcedure:          anyReads,
	weirv1connect.WeirServiceCaptureProcedure:              anyReads,
	weirv1connect.WeirServiceObserveProcedure:              anyReads,
	weirv1connect.WeirServiceListConnectionsProcedure:      anyReads,

	weirv1connect.SyncServiceSyncMuxProcedure:        ownWrites,
	weirv1connect.SyncServiceReportMuxProcedure:      ownWrites,
	weirv1connect.SyncServiceAcknowledgeMuxProcedure: ownWrites,
	weirv1connect.SyncServiceRenewNeighborsProcedure: ownWrites,
	weirv1connect.SyncServiceAnswerTaskProcedure:     ownWrites,
	weirv1connect.SyncServiceSyncHostProcedure:       ownWrites,
	weirv1connect.SyncServiceReportHostProcedure:     ownWrites,
	weirv1connect.SyncServiceSyncSwitchProcedure:     ownWrites,
	weirv1connect.SyncServiceReportSwitchProcedure:   ownWrites,

	weirv1connect.SyncServiceAllocatePortsProcedure: byLeader,
	weirv1connect.SyncServiceReleasePortsProcedure:  byLeader,

	weirv1connect.ClusterServiceDeleteManagerProcedure:  byLeader,
	weirv1connect.ClusterServiceJoinManagerProcedure:    byLeader,
	weirv1connect.ClusterServiceRegisterNodeProcedure:   byLeader,
	weirv1connect.ClusterServiceListManagersProcedure:   anyReads,
	weirv1connect.ClusterServiceGetReplicaProcedure:     anyReads,
	weirv1connect.ClusterServiceBackupProcedure:         anyReads,
	weirv1connect.ClusterServiceFollowProgressProcedure: anyReads,
	weirv1connect.ClusterServiceFollowReportsProcedure:  anyReads,
	weirv1connect.ClusterServiceReadTrafficProcedure:    anyReads,

	weirv1connect.TrustServiceCreateTokenProcedure:      byLeader,
	weirv1connect.TrustServiceDeleteTokenProcedure:      byLeader,
	weirv1connect.TrustServiceRevokePrincipalProcedure:  byLeader,
	weirv1connect.TrustServiceCreateUserProcedure:       byLeader,
	weirv1connect.TrustServiceUpdateUserProcedure:       byLeader,
	weirv1connect.TrustServiceRotateUserProcedure:       byLeader,
	weirv1connect.TrustServiceDeleteUserProcedure:       byLeader,
	weirv1connect.TrustServiceApplyTenantsProcedure:     byLeader,
	weirv1connect.TrustServiceDeleteTenantProcedure:     byLeader,
	weirv1connect.TrustServiceJoinProcedure:             ownWrites,
	weirv1connect.TrustServiceRenewCertificateProcedure: anyReads,
	weirv1connect.TrustServiceWhoAmIProcedure:           anyReads,
	weirv1connect.TrustServiceListTokensProcedure:       anyReads,
	weirv1connect.TrustServiceListPrincipalsProcedure:   anyReads,
	weirv1connect.TrustServiceListUsersProcedure:        anyReads,
	weirv1connect.TrustServiceListTenantsProcedure:      anyReads,
	weirv1connect.TrustServiceGetTenantProcedure:        anyReads,
	weirv1connect.TrustServiceListAuditProcedure:        anyReads,
}

// streams says whether a path is one of the calls that stream.
func streams(path string) bool {
	switch path {
	case weirv1connect.SyncServiceSyncMuxProcedure, weirv1connect.SyncServiceSyncHostProcedure, weirv1connect.SyncServiceAcknowledgeMuxProcedure,
		weirv1connect.WeirServiceCaptureProcedure, weirv1connect.WeirServiceObserveProcedure, weirv1connect.WeirServiceWatchVIPsProcedure,
		weirv1connect.WeirServiceWatchEventsProcedure, weirv1connect.WeirServiceWatchNodesProcedure,
		weirv1connect.WeirServiceWatchStatusProcedure, weirv1connect.WeirServiceWatchRatesProcedure, weirv1connect.ClusterServiceBackupProcedure,
		weirv1connect.ClusterServiceFollowProgressProcedure, weirv1connect.ClusterServiceFollowReportsProcedure, weirv1connect.ClusterServiceReadTrafficProcedure,
		weirv1connect.SyncServiceSyncSwitchProcedure:
		return true
	}
	return isWatch(path)
}

// isWatch says whether a path is a watch of REST.
func isWatch(path string) bool {
	switch path {
	case watchVIPsPath, watchEventsPath, watchNodesPath, watchStatusPath, watchRatesPath:
		return true
	}
	return false
}
