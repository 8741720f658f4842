package manager

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// ruleCallers are the kinds of callers, in the order of the marks in goldenRules. What the calls name is of tenant blue, of
// mux1, of host1, of switch sw1, of switch sw1, or of manager m2.
var ruleCallers = []struct {
	name    string
	kind    trust.Kind // empty: a stranger
	binding trust.Binding
}{
	{name: "stranger"},
	{name: "mux1", kind: trust.Mux},
	{name: "mux2", kind: trust.Mux},
	{name: "host1", kind: trust.Host},
	{name: "host2", kind: trust.Host},
	{name: "sw1", kind: trust.Switch},
	{name: "sw2", kind: trust.Switch},
	{name: "red-viewer", kind: trust.User, binding: trust.Binding{Tenant: "red", Role: trust.Viewer}},
	{name: "red-operator", kind: trust.User, binding: trust.Binding{Tenant: "red", Role: trust.Operator}},
	{name: "blue-viewer", kind: trust.User, binding: trust.Binding{Tenant: "blue", Role: trust.Viewer}},
	{name: "blue-operator", kind: trust.User, binding: trust.Binding{Tenant: "blue", Role: trust.Operator}},
	{name: "viewer", kind: trust.User, binding: trust.Binding{Tenant: trust.AllTenants, Role: trust.Viewer}},
	{name: "operator", kind: trust.User, binding: trust.Binding{Tenant: trust.AllTenants, Role: trust.Operator}},
	{name: "admin", kind: trust.User, binding: trust.Binding{Tenant: trust.AllTenants, Role: trust.Admin}},
	{name: "m2", kind: trust.Manager},
	{name: "m3", kind: trust.Manager},
}

// The rules, by caller: u is refused as unknown, d is denied, n is told that there is nothing of that name, and for a
// dot the call is permitted. A caller who may see a thing at all is denied to change it; to others it is not there.
const (
	//                  s mux host sw red blue all  managers
	viewsInTenant    = "u dd dd dd nn .. ... .."
	listsInTenant    = "u dd dd dd dd .. ... .."
	viewsInAnyTenant = "u dd dd dd .. .. ... .."
	writesInTenant   = "u dd dd dd dn d. d.. .."
	createsInTenant  = "u dd dd dd dd d. d.. .."
	viewsAllTenants  = "u dd dd dd dd dd ... .."
	viewsNone        = "u dd dd dd dd dd nnn nn" // as viewsAllTenants, of what is not there
	operatesAll      = "u dd dd dd dd dd d.. .."
	administers      = "u dd dd dd dd dd dd. .."
	findsNone        = "u dd dd dd dd dd ddn nn" // as administers, of what is not there
	asMux1           = "u .d dd dd dd dd ddd dd"
	asHost1          = "u dd .d dd dd dd ddd dd"
	asSwitch1        = "u dd dd .d dd dd ddd dd"
	asManager2       = "u dd dd dd dd dd ddd .d"
	asAnyManager     = "u dd dd dd dd dd ddd .."
	asAnyKnown       = "u .. .. .. .. .. ... .."
	asAnyNode        = "u .. .. .. dd dd ddd .."
	asEverybody      = ". .. .. .. .. .. ... .."
)

// goldenRules are all procedures, each with a request that changes nothing if it is permitted.
var goldenRules = map[string]struct {
	request proto.Message
	want    string
}{
	"WeirService/ApplyVIPs":            {&weirv1.ApplyVIPsRequest{DryRun: true, Vips: []*weirv1.VIP{of("blue", bare("sea", "198.51.100.1"))}}, createsInTenant},
	"WeirService/CreateVIP":            {&weirv1.CreateVIPRequest{Vip: of("blue", bare("sea", "198.51.100.1"))}, createsInTenant},
	"WeirService/UpdateVIP":            {&weirv1.UpdateVIPRequest{Name: "sea", Vip: of("blue", bare("other", "198.51.100.1"))}, writesInTenant},
	"WeirService/PatchVIP":             {&weirv1.PatchVIPRequest{Name: "sea", ResourceVersion: 1}, writesInTenant},
	"WeirService/PatchBackends":        {&weirv1.PatchBackendsRequest{Name: "sea", Port: 80, FieldManager: "scaler", Replace: true}, writesInTenant},
	"WeirService/DeleteVIP":            {&weirv1.DeleteVIPRequest{Name: "sea", ResourceVersion: 1}, writesInTenant},
	"WeirService/ReclaimPorts":         {&weirv1.ReclaimPortsRequest{Name: "sea", Address: "10.9.9.9"}, writesInTenant},
	"WeirService/GetSNAT":              {&weirv1.GetSNATRequest{Name: "sea"}, viewsInTenant},
	"WeirService/ListVIPs":             {&weirv1.ListVIPsRequest{Tenant: "blue"}, listsInTenant},
	"WeirService/GetVIP":               {&weirv1.GetVIPRequest{Name: "sea"}, viewsInTenant},
	"WeirService/WatchVIPs":            {&weirv1.WatchVIPsRequest{Tenant: "blue"}, listsInTenant},
	"WeirService/ListEvents":           {&weirv1.ListEventsRequest{Tenant: "blue"}, listsInTenant},
	"WeirService/WatchEvents":          {&weirv1.WatchEventsRequest{Tenant: "blue"}, listsInTenant},
	"WeirService/Explain":              {&weirv1.ExplainRequest{Protocol: "TCP", SourceAddress: "192.0.2.9", SourcePort: 1, DestinationAddress: "198.51.100.1", DestinationPort: 80}, viewsInTenant},
	"WeirService/ListConnections":      {&weirv1.ListConnectionsRequest{Vip: "sea"}, viewsInTenant},
	"WeirService/GetStatus":            {&weirv1.GetStatusRequest{}, viewsInAnyTenant},
	"WeirService/ListAddressPools":     {&weirv1.ListAddressPoolsRequest{}, viewsInAnyTenant},
	"WeirService/GetAddressPool":       {&weirv1.GetAddressPoolRequest{Name: "lagoon"}, viewsInTenant},
	"WeirService/CreateAddressPool":    {&weirv1.CreateAddressPoolRequest{Pool: &weirv1.AddressPool{Name: "lagoon"}}, administers},
	"WeirService/UpdateAddressPool":    {&weirv1.UpdateAddressPoolRequest{Name: "lagoon", Pool: &weirv1.AddressPool{Name: "other"}}, administers},
	"WeirService/DeleteAddressPool":    {&weirv1.DeleteAddressPoolRequest{Name: "none"}, findsNone},
	"WeirService/CreatePrefixList":     {&weirv1.CreatePrefixListRequest{PrefixList: &weirv1.PrefixList{Name: "ban", Tenant: "blue"}}, createsInTenant},
	"WeirService/UpdatePrefixList":     {&weirv1.UpdatePrefixListRequest{Name: "ban", PrefixList: &weirv1.PrefixList{Name: "other", Tenant: "blue"}}, writesInTenant},
	"WeirService/ChangePrefixList":     {&weirv1.ChangePrefixListRequest{Name: "ban", ResourceVersion: 1, Add: []string{"192.0.2.9"}}, writesInTenant},
	"WeirService/DeletePrefixList":     {&weirv1.DeletePrefixListRequest{Name: "ban", ResourceVersion: 1}, writesInTenant},
	"WeirService/ListPrefixLists":      {&weirv1.ListPrefixListsRequest{Tenant: "blue"}, listsInTenant},
	"WeirService/GetPrefixList":        {&weirv1.GetPrefixListRequest{Name: "ban"}, viewsInTenant},
	"WeirService/CreateVirtualNetwork": {&weirv1.CreateVirtualNetworkRequest{Network: &weirv1.VirtualNetwork{Name: "lake", Tenant: "blue"}}, createsInTenant},
	"WeirService/UpdateVirtualNetwork": {&weirv1.UpdateVirtualNetworkRequest{Name: "lake", Network: &weirv1.VirtualNetwork{Name: "other", Tenant: "blue"}}, writesInTenant},
	"WeirService/PatchVirtualNetwork":  {&weirv1.PatchVirtualNetworkRequest{Name: "lake", ResourceVersion: 1}, writesInTenant},
	"WeirService/DeleteVirtualNetwork": {&weirv1.DeleteVirtualNetworkRequest{Name: "lake", ResourceVersion: 1}, writesInTenant},
	"WeirService/ListVirtualNetworks":  {&weirv1.ListVirtualNetworksRequest{Tenant: "blue"}, listsInTenant},
	"WeirService/GetVirtualNetwork":    {&weirv1.GetVirtualNetworkRequest{Name: "lake"}, viewsInTenant},
	"WeirService/GetOverlay":           {&weirv1.GetOverlayRequest{}, viewsInAnyTenant},
	"WeirService/UpdateOverlay":        {&weirv1.UpdateOverlayRequest{Overlay: &weirv1.Overlay{Name: "other"}}, administers},
	"WeirService/DeleteOverlay":        {&weirv1.DeleteOverlayRequest{ResourceVersion: 1}, administers},
	"WeirService/ListNodes":            {&weirv1.ListNodesRequest{}, viewsInAnyTenant},
	"WeirService/WatchNodes":           {&weirv1.WatchNodesRequest{}, viewsInAnyTenant},
	"WeirService/WatchStatus":          {&weirv1.WatchStatusRequest{}, viewsInAnyTenant},
	"WeirService/WatchRates":           {&weirv1.WatchRatesRequest{Tenant: "blue"}, listsInTenant},
	"WeirService/ListFabrics":          {&weirv1.ListFabricsRequest{}, viewsAllTenants},
	"WeirService/GetFabric":            {&weirv1.GetFabricRequest{Name: "none"}, viewsNone},
	"WeirService/UpdateFabric":         {&weirv1.UpdateFabricRequest{Name: "east", Fabric: &weirv1.Fabric{Name: "other"}}, administers},
	"WeirService/DeleteFabric":         {&weirv1.DeleteFabricRequest{Name: "none"}, findsNone},
	"WeirService/PlanPlacement":        {&weirv1.PlanPlacementRequest{}, viewsAllTenants},
	"WeirService/OptimizePlacement":    {&weirv1.OptimizePlacementRequest{}, operatesAll},
	"WeirService/ExplainPlacement":     {&weirv1.ExplainPlacementRequest{Vip: "sea"}, viewsAllTenants},
	"WeirService/GetNode":              {&weirv1.GetNodeRequest{Name: "mux1"}, viewsInAnyTenant},
	"WeirService/DeleteNode":           {&weirv1.DeleteNodeRequest{Name: "mux1"}, operatesAll},
	"WeirService/DrainSwitch":          {&weirv1.DrainSwitchRequest{Name: "mux1"}, operatesAll},
	"WeirService/UndrainSwitch":        {&weirv1.UndrainSwitchRequest{Name: "mux1"}, operatesAll},
	"WeirService/ExplainPacket":        {&weirv1.ExplainPacketRequest{Mux: "mux1"}, operatesAll},
	"WeirService/ExplainPath":          {&weirv1.ExplainPathRequest{Mux: "mux1"}, operatesAll},
	"WeirService/Observe":              {&weirv1.ObserveRequest{Muxes: []string{"mux1"}, Count: 1 << 30}, operatesAll},
	"WeirService/Capture":              {&weirv1.CaptureRequest{Mux: "mux1", Count: 1 << 30}, operatesAll},

	"SyncService/SyncMux":        {&weirv1.SyncMuxRequest{Name: "mux1", Addresses: []string{"10.0.0.1"}}, asMux1},
	"SyncService/ReportMux":      {&weirv1.ReportMuxRequest{Name: "mux1"}, asMux1},
	"SyncService/AcknowledgeMux": {&weirv1.AcknowledgeMuxRequest{Name: "mux1"}, asMux1},
	"SyncService/RenewNeighbors": {&weirv1.RenewNeighborsRequest{Name: "mux1"}, asMux1},
	"SyncService/AnswerTask":     {&weirv1.AnswerTaskRequest{Name: "mux1", Id: 1}, asMux1},
	"SyncService/SyncHost":       {&weirv1.SyncHostRequest{Name: "host1", Addresses: []string{"10.0.0.2"}}, asHost1},
	"SyncService/SyncSwitch":     {&weirv1.SyncSwitchRequest{Name: "sw1", Addresses: []string{"10.0.0.9"}}, asSwitch1},
	"SyncService/ReportSwitch":   {&weirv1.ReportSwitchRequest{Name: "sw1", Status: &weirv1.SwitchStatus{}}, asSwitch1},
	"SyncService/ReportHost":     {&weirv1.ReportHostRequest{Name: "host1"}, asHost1},
	"SyncService/AllocatePorts":  {&weirv1.AllocatePortsRequest{Name: "host1"}, asHost1},
	"SyncService/ReleasePorts":   {&weirv1.ReleasePortsRequest{Name: "host1"}, asHost1},

	"ClusterService/ListManagers":   {&weirv1.ListManagersRequest{}, viewsAllTenants},
	"ClusterService/GetReplica":     {&weirv1.GetReplicaRequest{}, viewsAllTenants},
	"ClusterService/DeleteManager":  {&weirv1.DeleteManagerRequest{Name: "none"}, findsNone},
	"ClusterService/JoinManager":    {&weirv1.JoinManagerRequest{Name: "m2"}, asManager2},
	"ClusterService/RegisterNode":   {&weirv1.RegisterNodeRequest{}, asAnyManager},
	"ClusterService/FollowProgress": {&weirv1.FollowProgressRequest{Name: "m2"}, asManager2},
	"ClusterService/FollowReports":  {&weirv1.FollowReportsRequest{Name: "m2"}, asManager2},
	"ClusterService/ReadTraffic":    {&weirv1.ReadTrafficRequest{}, viewsAllTenants},
	"ClusterService/Backup":         {&weirv1.BackupRequest{}, administers},

	"TrustService/Join":             {&weirv1.JoinRequest{}, asEverybody},
	"TrustService/RenewCertificate": {&weirv1.RenewCertificateRequest{}, asAnyNode},
	"TrustService/WhoAmI":           {&weirv1.WhoAmIRequest{}, asAnyKnown},
	"TrustService/CreateToken":      {&weirv1.CreateTokenRequest{Role: "none"}, administers},
	"TrustService/ListTokens":       {&weirv1.ListTokensRequest{}, administers},
	"TrustService/DeleteToken":      {&weirv1.DeleteTokenRequest{Id: "none"}, findsNone},
	"TrustService/ListPrincipals":   {&weirv1.ListPrincipalsRequest{}, viewsAllTenants},
	"TrustService/RevokePrincipal":  {&weirv1.RevokePrincipalRequest{Role: "mux", Name: "none"}, findsNone},
	"TrustService/CreateUser":       {&weirv1.CreateUserRequest{User: &weirv1.User{Name: "none"}}, administers},
	"TrustService/UpdateUser":       {&weirv1.UpdateUserRequest{Name: "none"}, findsNone},
	"TrustService/RotateUser":       {&weirv1.RotateUserRequest{Name: "none"}, findsNone},
	"TrustService/ListUsers":        {&weirv1.ListUsersRequest{}, administers},
	"TrustService/DeleteUser":       {&weirv1.DeleteUserRequest{Name: "none"}, findsNone},
	"TrustService/ApplyTenants":     {&weirv1.ApplyTenantsRequest{}, administers},
	"TrustService/ListTenants":      {&weirv1.ListTenantsRequest{}, viewsInAnyTenant},
	"TrustService/GetTenant":        {&weirv1.GetTenantRequest{Name: "blue"}, viewsInTenant},
	"TrustService/DeleteTenant":     {&weirv1.DeleteTenantRequest{Name: "none"}, findsNone},
	"TrustService/ListAudit":        {&weirv1.ListAuditRequest{Limit: 1}, administers},
}

// Each procedure is called as each kind of caller, by gRPC and, where it has a path, by REST, and answers as the golden
// table says. A procedure without a row fails, and so does a row without a procedure.
func TestRules(t *testing.T) {
	t.Parallel()
	m, admin, url := secure(t, Config{})
	if _, err := admin.ApplyTenants(t.Context(), &weirv1.ApplyTenantsRequest{Tenants: []*weirv1.Tenant{{Name: "red"}, {Name: "blue"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{
		Pools:       []*weirv1.AddressPool{{Name: "lagoon", Prefixes: []string{"192.0.2.0/28"}, Tenants: []string{"blue"}}},
		PrefixLists: []*weirv1.PrefixList{{Name: "ban", Tenant: "blue", Prefixes: []string{"192.0.2.77/32"}}},
		Networks:    []*weirv1.VirtualNetwork{{Name: "lake", Tenant: "blue", Vni: 7, Prefixes: []string{"192.168.0.0/16"}}},
		Overlays:    []*weirv1.Overlay{{Name: "default", Addresses: []string{"192.0.2.250"}}},
		Vips:        []*weirv1.VIP{of("blue", bare("sea", "198.51.100.1"))},
	}); err != nil {
		t.Fatal(err)
	}
	callers := make([]wireCaller, 0, len(ruleCallers))
	for _, c := range ruleCallers {
		callers = append(callers, newRuleCaller(t, m, admin, c.kind, c.name, c.binding))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i, procedure := range map[int]string{1: "SyncService/SyncMux", 3: "SyncService/SyncHost", 5: "SyncService/SyncSwitch"} { // all are connected from now on
		if got := firstOf(callers[i].call(ctx, t, url, "/weir.v1."+procedure, goldenRules[procedure].request)); !got.message {
			t.Fatalf("the stream of %s: %+v", ruleCallers[i].name, got)
		}
	}
	known := map[string]bool{}
	for procedure := range authz.Procedures() {
		known[procedure] = true
		row, there := goldenRules[strings.TrimPrefix(procedure, "/weir.v1.")]
		if !there {
			t.Errorf("%s has no row in the golden table", procedure)
			continue
		}
		want := strings.ReplaceAll(row.want, " ", "")
		for i, caller := range callers {
			holdRule(t, url, procedure, row.request, ruleCallers[i].name, caller, want[i])
		}
	}
	for row := range goldenRules {
		if !known["/weir.v1."+row] {
			t.Errorf("the row %s is of no procedure", row)
		}
	}
}

// newRuleCaller is a caller with a certificate, for nodes and managers, or a bearer token.
func newRuleCaller(t *testing.T, m *Manager, admin *rpc.Client, kind trust.Kind, name string, b trust.Binding) wireCaller {
	t.Helper()
	switch kind {
	case "":
		return newWireCaller(t, m, nil, "")
	case trust.User:
		made, err := admin.CreateUser(t.Context(), &weirv1.CreateUserRequest{User: &weirv1.User{
			Name: "user-" + name, Bindings: []*weirv1.Binding{{Tenant: b.Tenant, Role: string(b.Role)}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return newWireCaller(t, m, nil, made.GetToken())
	}
	credential, err := pki.Issue(m.identity.Authority(), trust.Identity{Kind: kind, Name: name}, nil, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return newWireCaller(t, m, credential, "")
}

// holdRule makes the call by gRPC, and by REST if there is a path.
func holdRule(t *testing.T, url, procedure string, request proto.Message, name string, caller wireCaller, want byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a stream that says nothing
	defer cancel()
	answer := caller.call(ctx, t, url, procedure, request)
	defer answer.Body.Close()
	got := firstOf(answer)
	marks := map[connect.Code]byte{connect.CodeUnauthenticated: 'u', connect.CodePermissionDenied: 'd', connect.CodeNotFound: 'n'}
	mark, refused := marks[got.code]
	if !refused {
		mark = '.'
	}
	if mark != want {
		t.Errorf("%s by %s: %q, want %q: %+v", procedure, name, mark, want, got)
	}
	method, path, body := restOf(t, procedure, request)
	if method == "" {
		return
	}
	byREST := caller.do(ctx, t, method, url+path, "application/json", body)
	defer byREST.Body.Close()
	marksOfREST := map[int]byte{http.StatusUnauthorized: 'u', http.StatusForbidden: 'd', http.StatusNotFound: 'n'}
	if mark, refused = marksOfREST[byREST.StatusCode]; !refused {
		mark = '.'
	}
	if mark != want {
		text, _ := io.ReadAll(byREST.Body) // what came is told
		t.Errorf("%s by %s, by REST: %s, want %q: %s", procedure, name, byREST.Status, want, text)
	}
}

// restOf is the request as REST has it: the path with its fields, the body, and what is in neither as a query.
func restOf(t *testing.T, procedure string, request proto.Message) (method, target string, body []byte) {
	t.Helper()
	service, name, _ := strings.Cut(strings.TrimPrefix(procedure, "/"), "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + name))
	if err != nil {
		t.Fatal(err)
	}
	descriptor := found.(protoreflect.MethodDescriptor)
	method, target, _ = strings.Cut(httpRule(descriptor), " ")
	if method == "" {
		return "", "", nil
	}
	in := proto.GetExtension(descriptor.Options(), annotations.E_Http).(*annotations.HttpRule).GetBody()
	query, whole := url.Values{}, request.ProtoReflect()
	for i := range whole.Descriptor().Fields().Len() {
		f := whole.Descriptor().Fields().Get(i)
		place := "{" + string(f.Name()) + "}"
		switch {
		case strings.Contains(target, place):
			target = strings.ReplaceAll(target, place, whole.Get(f).String())
		case in == string(f.Name()):
			if body, err = protojson.Marshal(whole.Get(f).Message().Interface()); err != nil {
				t.Fatal(err)
			}
		case in != "*" && f.Message() == nil && whole.Has(f):
			query.Set(f.JSONName(), whole.Get(f).String())
		}
	}
	if in == "*" {
		if body, err = protojson.Marshal(request); err != nil {
			t.Fatal(err)
		}
	}
	return method, target + "?" + query.Encode(), body
}

// httpRule is how REST calls a method: "POST /v1/vips", or empty.
func httpRule(method protoreflect.MethodDescriptor) string {
	r, ok := proto.GetExtension(method.Options(), annotations.E_Http).(*annotations.HttpRule)
	if !ok {
		return ""
	}
	for name, path := range map[string]string{
		http.MethodGet: r.GetGet(), http.MethodPost: r.GetPost(), http.MethodPut: r.GetPut(),
		http.MethodPatch: r.GetPatch(), http.MethodDelete: r.GetDelete(),
	} {
		if path != "" {
			return name + " " + path
		}
	}
	return ""
}
