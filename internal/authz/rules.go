package authz

import (
	"fmt"
	"iter"
	"maps"
	"strings"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
)

// scope says where a caller must have the role of a rule.
type scope int

const (
	inCluster scope = iota // in all tenants
	inTenant               // in the tenant of what the call is about; in some tenant, for those that list
	asItself               // it is a node or a manager, and calls for itself
	asManager              // it is a manager, and calls for a node
	asAnybody              // it is known
	asNobody               // it need not be known
)

// rule says who may call a procedure.
type rule struct {
	scope   scope
	role    trust.Role
	kind    trust.Kind // of what calls for itself
	also    trust.Kind // likewise; empty: none other
	changes bool       // what it did goes to the audit log
}

// rules are those of all procedures. What is not here may be called by nobody.
var rules = map[string]rule{
	weirv1connect.WeirServiceApplyVIPsProcedure:            {scope: inTenant, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceCreateVIPProcedure:            {scope: inTenant, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceUpdateVIPProcedure:            {scope: inTenant, role: trust.Operator, changes: true},
	weirv1connect.WeirServicePatchVIPProcedure:             {scope: inTenant, role: trust.Operator, changes: true},
	weirv1connect.WeirServicePatchBackendsProcedure:        {scope: inTenant, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceDeleteVIPProcedure:            {scope: inTenant, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceReclaimPortsProcedure:         {scope: inTenant, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceGetSNATProcedure:              {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceListVIPsProcedure:             {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceGetVIPProcedure:               {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceWatchVIPsProcedure:            {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceListEventsProcedure:           {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceWatchEventsProcedure:          {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceExplainProcedure:              {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceGetStatusProcedure:            {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceListAddressPoolsProcedure:     {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceGetAddressPoolProcedure:       {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceCreateAddressPoolProcedure:    {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.WeirServiceUpdateAddressPoolProcedure:    {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.WeirServiceDeleteAddressPoolProcedure:    {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.WeirServiceListNodesProcedure:            {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceGetNodeProcedure:              {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceWatchNodesProcedure:           {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceWatchStatusProcedure:          {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceWatchRatesProcedure:           {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceCreatePrefixListProcedure:     {scope: inTenant, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceUpdatePrefixListProcedure:     {scope: inTenant, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceChangePrefixListProcedure:     {scope: inTenant, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceDeletePrefixListProcedure:     {scope: inTenant, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceListPrefixListsProcedure:      {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceGetPrefixListProcedure:        {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceCreateVirtualNetworkProcedure: {scope: inTenant, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceUpdateVirtualNetworkProcedure: {scope: inTenant, role: trust.Operator, changes: true},
	weirv1connect.WeirServicePatchVirtualNetworkProcedure:  {scope: inTenant, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceDeleteVirtualNetworkProcedure: {scope: inTenant, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceListVirtualNetworksProcedure:  {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceGetVirtualNetworkProcedure:    {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceUpdateOverlayProcedure:        {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.WeirServiceGetOverlayProcedure:           {scope: inTenant, role: trust.Viewer},
	weirv1connect.WeirServiceDeleteOverlayProcedure:        {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.WeirServiceUpdateFabricProcedure:         {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.WeirServiceListFabricsProcedure:          {scope: inCluster, role: trust.Viewer},
	weirv1connect.WeirServiceGetFabricProcedure:            {scope: inCluster, role: trust.Viewer},
	weirv1connect.WeirServiceDeleteFabricProcedure:         {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.WeirServicePlanPlacementProcedure:        {scope: inCluster, role: trust.Viewer},
	weirv1connect.WeirServiceOptimizePlacementProcedure:    {scope: inCluster, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceExplainPlacementProcedure:     {scope: inCluster, role: trust.Viewer},
	weirv1connect.WeirServiceDeleteNodeProcedure:           {scope: inCluster, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceDrainSwitchProcedure:          {scope: inCluster, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceUndrainSwitchProcedure:        {scope: inCluster, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceExplainPacketProcedure:        {scope: inCluster, role: trust.Operator},
	weirv1connect.WeirServiceExplainPathProcedure:          {scope: inCluster, role: trust.Operator},
	weirv1connect.WeirServiceCaptureProcedure:              {scope: inCluster, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceObserveProcedure:              {scope: inCluster, role: trust.Operator, changes: true},
	weirv1connect.WeirServiceListConnectionsProcedure:      {scope: inTenant, role: trust.Viewer},
	weirv1connect.SyncServiceSyncMuxProcedure:              {scope: asItself, kind: trust.Mux},
	weirv1connect.SyncServiceReportMuxProcedure:            {scope: asItself, kind: trust.Mux},
	weirv1connect.SyncServiceAcknowledgeMuxProcedure:       {scope: asItself, kind: trust.Mux},
	weirv1connect.SyncServiceRenewNeighborsProcedure:       {scope: asItself, kind: trust.Mux},
	weirv1connect.SyncServiceAnswerTaskProcedure:           {scope: asItself, kind: trust.Mux, also: trust.Host},
	weirv1connect.SyncServiceSyncHostProcedure:             {scope: asItself, kind: trust.Host},
	weirv1connect.SyncServiceReportHostProcedure:           {scope: asItself, kind: trust.Host},
	weirv1connect.SyncServiceSyncSwitchProcedure:           {scope: asItself, kind: trust.Switch},
	weirv1connect.SyncServiceReportSwitchProcedure:         {scope: asItself, kind: trust.Switch},
	weirv1connect.SyncServiceAllocatePortsProcedure:        {scope: asItself, kind: trust.Host},
	weirv1connect.SyncServiceReleasePortsProcedure:         {scope: asItself, kind: trust.Host},
	weirv1connect.ClusterServiceListManagersProcedure:      {scope: inCluster, role: trust.Viewer},
	weirv1connect.ClusterServiceDeleteManagerProcedure:     {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.ClusterServiceJoinManagerProcedure:       {scope: asItself, kind: trust.Manager, changes: true},
	weirv1connect.ClusterServiceRegisterNodeProcedure:      {scope: asManager},
	weirv1connect.ClusterServiceGetReplicaProcedure:        {scope: inCluster, role: trust.Viewer},
	weirv1connect.ClusterServiceFollowProgressProcedure:    {scope: asItself, kind: trust.Manager},
	weirv1connect.ClusterServiceFollowReportsProcedure:     {scope: asItself, kind: trust.Manager},
	weirv1connect.ClusterServiceReadTrafficProcedure:       {scope: inCluster, role: trust.Viewer},
	weirv1connect.ClusterServiceBackupProcedure:            {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.TrustServiceJoinProcedure:                {scope: asNobody, changes: true},
	weirv1connect.TrustServiceRenewCertificateProcedure:    {scope: asAnybody},
	weirv1connect.TrustServiceWhoAmIProcedure:              {scope: asAnybody},
	weirv1connect.TrustServiceCreateTokenProcedure:         {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.TrustServiceListTokensProcedure:          {scope: inCluster, role: trust.Admin},
	weirv1connect.TrustServiceDeleteTokenProcedure:         {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.TrustServiceListPrincipalsProcedure:      {scope: inCluster, role: trust.Viewer},
	weirv1connect.TrustServiceRevokePrincipalProcedure:     {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.TrustServiceCreateUserProcedure:          {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.TrustServiceUpdateUserProcedure:          {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.TrustServiceRotateUserProcedure:          {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.TrustServiceListUsersProcedure:           {scope: inCluster, role: trust.Admin},
	weirv1connect.TrustServiceDeleteUserProcedure:          {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.TrustServiceApplyTenantsProcedure:        {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.TrustServiceListTenantsProcedure:         {scope: inTenant, role: trust.Viewer},
	weirv1connect.TrustServiceGetTenantProcedure:           {scope: inTenant, role: trust.Viewer},
	weirv1connect.TrustServiceDeleteTenantProcedure:        {scope: inCluster, role: trust.Admin, changes: true},
	weirv1connect.TrustServiceListAuditProcedure:           {scope: inCluster, role: trust.Admin},
}

// Procedures are those that have a rule.
func Procedures() iter.Seq[string] { return maps.Keys(rules) }

// Changes says whether calls of a procedure go to the audit log when they succeed.
func Changes(procedure string) bool { return rules[procedure].changes }

// AllowsAnonymous says whether a procedure may be called without a credential.
func AllowsAnonymous(procedure string) bool { return rules[procedure].scope == asNobody }

// Permit says whether the caller may make the call with this message.
func Permit(caller trust.Identity, s *store.State, procedure string, message any) error {
	r, known := rules[procedure]
	switch {
	case !known:
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("nobody may call %s", procedure))
	case r.scope == asNobody || caller.Method == trust.Insecure:
		return nil
	case caller.Anonymous():
		return apierr.Unauthenticated(caller)
	}
	denied := func(format string, args ...any) error {
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%s %s", caller, fmt.Sprintf(format, args...)))
	}
	switch r.scope {
	case asItself:
		named, ok := message.(interface{ GetName() string })
		if !ok || !caller.Is(r.kind, named.GetName()) && (r.also == "" || !caller.Is(r.also, named.GetName())) {
			return denied("may not call %s for %s/%s", short(procedure), r.kind, nameOf(message))
		}
	case asManager:
		if caller.Kind != trust.Manager {
			return denied("may not call %s: only managers do", short(procedure))
		}
	case inCluster:
		if !caller.May(r.role, trust.AllTenants) {
			return denied("may not call %s: that takes the role %s in all tenants", short(procedure), r.role)
		}
	case inTenant:
		if tenants, everywhere := caller.Tenants(r.role); !everywhere && len(tenants) == 0 {
			return denied("may not call %s: that takes the role %s", short(procedure), r.role)
		}
		return permitTenant(caller, s, r.role, message)
	}
	return nil
}

func short(procedure string) string { return procedure[strings.LastIndexByte(procedure, '/')+1:] }

func nameOf(message any) string {
	if named, ok := message.(interface{ GetName() string }); ok {
		return named.GetName()
	}
	return ""
}
