package limits

import (
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Field bounds a field: the bytes of each text, and the elements of a list or map. 0 is the default.
type Field struct {
	Text int
	List int
}

// What a field may have that is not in the table.
const (
	defaultText = 1024
	defaultList = 1024
)

// Classes of texts, in bytes.
const (
	word    = 64   // one of some words, a protocol, a version, an id of a chunk
	address = 64   // an address or a prefix
	name    = 256  // DNS labels have their own rule, with an error of its own, far below
	line    = 1024 // for people
	page    = 4096 // tokens of pages and selectors
	request = 8 << 10
	frame   = 16 << 10
)

// Numbers of list elements.
const (
	sources     = 4096    // addresses and prefixes of one endpoint
	prefixes    = 1000000 // of a prefix list
	resources   = 16384   // in one apply: no more operations fit into a transaction
	backends    = 8191    // of an endpoint, and so the workloads of a VIP
	workloads   = 16384   // of a virtual network
	attachments = 4096    // of a VIP, and of a virtual network
	rows        = 16384   // of a table of a node, by tenant or backend
	verdicts    = 1024
	warnings    = 64
	events      = 64
)

// Fields are the bounds of all texts, lists and maps that a request may hold, by the name of the message and the field.
// Those of package weir.v1 are without it.
var Fields = map[protoreflect.FullName]Field{
	"google.protobuf.ListValue.values":   {List: resources},
	"google.protobuf.Struct.fields":      {List: 1024, Text: name},
	"google.protobuf.Value.string_value": {Text: page},

	// What users write.
	"ApplyVIPsRequest.vips":            {List: resources},
	"ApplyVIPsRequest.pools":           {List: resources},
	"ApplyVIPsRequest.prefix_lists":    {List: resources},
	"UpdateVIPRequest.name":            {Text: name},
	"PatchVIPRequest.name":             {Text: name},
	"DeleteVIPRequest.name":            {Text: name},
	"GetVIPRequest.name":               {Text: name},
	"VIP.name":                         {Text: name},
	"VIP.tenant":                       {Text: name},
	"VIP.labels":                       {List: 64, Text: name},
	"VIP.address":                      {Text: address},
	"VIP.endpoints":                    {List: resources},
	"VIP.consistency":                  {Text: word},
	"VIP.ping":                         {Text: word},
	"VIP.pool":                         {Text: name},
	"VIP.family":                       {Text: word},
	"VIP.updated_by":                   {Text: name},
	"VIPStatus.rejections":             {List: sources, Text: 2 * line},
	"VIPStatus.conditions":             {List: 16},
	"Condition.type":                   {Text: word},
	"Condition.status":                 {Text: word},
	"Condition.reason":                 {Text: word},
	"Condition.message":                {Text: 4 * line},
	"Endpoint.protocol":                {Text: word},
	"Endpoint.backends":                {List: backends},
	"Endpoint.all_unhealthy":           {Text: word},
	"Endpoint.affinity":                {Text: word},
	"Endpoint.syn_cookies":             {Text: word},
	"Endpoint.allow":                   {List: sources, Text: address},
	"Endpoint.deny":                    {List: sources, Text: address},
	"Endpoint.allow_lists":             {List: 16, Text: name},
	"Endpoint.deny_lists":              {List: 16, Text: name},
	"Backend.address":                  {Text: address},
	"Backend.host":                     {Text: name},
	"Backend.tunnel":                   {Text: address},
	"BackendStatus.health":             {Text: word},
	"BackendStatus.reason":             {Text: line},
	"HTTPCheck.path":                   {Text: 2 * line},
	"HTTPCheck.host":                   {Text: name},
	"SNAT.workloads":                   {List: backends},
	"SNAT.reserved":                    {List: 256, Text: word},
	"SNAT.except":                      {List: 64, Text: address},
	"SNAT.filtering":                   {Text: word},
	"SNAT.exhausted":                   {Text: word},
	"SNATWorkload.address":             {Text: address},
	"SNATWorkload.host":                {Text: name},
	"SNATWorkload.tunnel":              {Text: address},
	"Fastpath.sources":                 {List: sources, Text: address},
	"Overload.triggers":                {List: 16, Text: word},
	"Overload.steps":                   {List: 16},
	"OverloadStep.action":              {Text: word},
	"OverloadStep.scrubber":            {Text: name},
	"Diversion.next_hops":              {List: 16, Text: address},
	"Diversion.communities":            {List: 64, Text: word},
	"Scrubber.name":                    {Text: name},
	"Scrubber.next_hops":               {List: 16, Text: address},
	"Scrubber.communities":             {List: 64, Text: word},
	"UpdateAddressPoolRequest.name":    {Text: name},
	"GetAddressPoolRequest.name":       {Text: name},
	"DeleteAddressPoolRequest.name":    {Text: name},
	"AddressPool.name":                 {Text: name},
	"AddressPool.labels":               {List: 64, Text: name},
	"AddressPool.prefixes":             {List: 256, Text: address},
	"AddressPool.exclusions":           {List: 256, Text: address},
	"AddressPool.tenants":              {List: 1024, Text: name},
	"AddressPool.scrubbers":            {List: 64},
	"UpdatePrefixListRequest.name":     {Text: name},
	"GetPrefixListRequest.name":        {Text: name},
	"DeletePrefixListRequest.name":     {Text: name},
	"ChangePrefixListRequest.name":     {Text: name},
	"ChangePrefixListRequest.add":      {List: prefixes, Text: address},
	"ChangePrefixListRequest.remove":   {List: prefixes, Text: address},
	"PrefixList.name":                  {Text: name},
	"PrefixList.tenant":                {Text: name},
	"PrefixList.labels":                {List: 64, Text: name},
	"PrefixList.prefixes":              {List: prefixes, Text: address},
	"PrefixListStatus.vips":            {List: 1 << 20, Text: name},
	"ApplyVIPsRequest.networks":        {List: resources},
	"ApplyVIPsRequest.overlays":        {List: 1},
	"VIP.attachments":                  {List: attachments},
	"Attachment.network":               {Text: name},
	"Attachment.address":               {Text: address},
	"Attachment.mode":                  {Text: word},
	"VirtualNetwork.name":              {Text: name},
	"VirtualNetwork.tenant":            {Text: name},
	"VirtualNetwork.labels":            {List: 64, Text: name},
	"VirtualNetwork.prefixes":          {List: 64, Text: address},
	"VirtualNetwork.workloads":         {List: workloads},
	"VirtualNetwork.allowed_tenants":   {List: 1024, Text: name},
	"WithoutAgent.vteps":               {List: 256, Text: address},
	"WithoutAgent.reply":               {Text: word},
	"VirtualNetworkStatus.vips":        {List: attachments},
	"NetworkGateway.mac":               {Text: word},
	"NetworkWorkload.name":             {Text: name},
	"NetworkWorkload.addresses":        {List: 16, Text: address},
	"NetworkWorkload.mac":              {Text: word},
	"NetworkWorkload.host":             {Text: name},
	"NetworkWorkload.interface":        {Text: word},
	"NetworkVIP.address":               {Text: address},
	"NetworkVIP.vip":                   {Text: name},
	"NetworkVIP.tenant":                {Text: name},
	"NetworkVIP.mode":                  {Text: word},
	"Overlay.name":                     {Text: name},
	"Overlay.labels":                   {List: 64, Text: name},
	"Overlay.addresses":                {List: 2, Text: address},
	"Overlay.local_prefixes":           {List: 2, Text: address},
	"UpdateVirtualNetworkRequest.name": {Text: name},
	"PatchVirtualNetworkRequest.name":  {Text: name},
	"GetVirtualNetworkRequest.name":    {Text: name},
	"DeleteVirtualNetworkRequest.name": {Text: name},
	"GetSNATRequest.name":              {Text: name},
	"ReclaimPortsRequest.name":         {Text: name},
	"ReclaimPortsRequest.address":      {Text: address},
	"ReclaimPortsRequest.ranges":       {List: 8192},

	// What users ask.
	"ListVIPsRequest.host":                      {Text: name},
	"ListVIPsRequest.addresses":                 {List: 1024, Text: address},
	"ListVIPsRequest.tenant":                    {Text: name},
	"ListVIPsRequest.page_token":                {Text: page},
	"ListVIPsRequest.label_selector":            {Text: page},
	"ListVIPsRequest.name_prefix":               {Text: name},
	"WatchVIPsRequest.tenant":                   {Text: name},
	"WatchVIPsRequest.label_selector":           {Text: page},
	"WatchVIPsRequest.name_prefix":              {Text: name},
	"ListAddressPoolsRequest.page_token":        {Text: page},
	"ListAddressPoolsRequest.label_selector":    {Text: page},
	"ListAddressPoolsRequest.name_prefix":       {Text: name},
	"ListPrefixListsRequest.tenant":             {Text: name},
	"ListPrefixListsRequest.page_token":         {Text: page},
	"ListPrefixListsRequest.label_selector":     {Text: page},
	"ListPrefixListsRequest.name_prefix":        {Text: name},
	"ListVirtualNetworksRequest.tenant":         {Text: name},
	"ListVirtualNetworksRequest.page_token":     {Text: page},
	"ListVirtualNetworksRequest.label_selector": {Text: page},
	"ListVirtualNetworksRequest.name_prefix":    {Text: name},
	"ListAuditRequest.identity":                 {Text: name},
	"ListAuditRequest.subject":                  {Text: name},
	"ListEventsRequest.kind":                    {Text: word},
	"ListEventsRequest.object":                  {Text: name},
	"ListEventsRequest.tenant":                  {Text: name},
	"ListEventsRequest.severity":                {Text: word},
	"ListEventsRequest.page_token":              {Text: page},
	"WatchEventsRequest.kind":                   {Text: word},
	"WatchEventsRequest.object":                 {Text: name},
	"WatchEventsRequest.tenant":                 {Text: name},
	"WatchEventsRequest.severity":               {Text: word},
	"ListNodesRequest.role":                     {Text: word},
	"GetNodeRequest.name":                       {Text: name},
	"DeleteNodeRequest.name":                    {Text: name},
	"ExplainRequest.protocol":                   {Text: word},
	"ExplainRequest.source_address":             {Text: address},
	"ExplainRequest.destination_address":        {Text: address},
	"ExplainRequest.network":                    {Text: name},
	"ExplainPacketRequest.mux":                  {Text: name},
	"ExplainPacketRequest.frame":                {Text: frame},
	"CaptureRequest.mux":                        {Text: name},
	"CaptureFilter.client":                      {Text: address},
	"CaptureFilter.vip":                         {Text: address},
	"CaptureFilter.protocol":                    {Text: word},
	"CaptureFilter.verdict":                     {Text: word},

	// What nodes say.
	"SyncMuxRequest.name":          {Text: name},
	"SyncMuxRequest.addresses":     {List: 64, Text: address},
	"SyncMuxRequest.version":       {Text: word},
	"SyncMuxRequest.prefix_chunks": {List: 1 << 16, Text: word},
	"SyncHostRequest.name":         {Text: name},
	"SyncHostRequest.addresses":    {List: 64, Text: address},
	"SyncHostRequest.version":      {Text: word},
	"AcknowledgeMuxRequest.name":   {Text: name},
	"ReportMuxRequest.name":        {Text: name},
	"ReportMuxRequest.events":      {List: events},
	"ReportHostRequest.name":       {Text: name},
	"ReportHostRequest.events":     {List: events},
	"ReportHostRequest.health":     {List: rows},
	"ReportHostRequest.sessions":   {List: rows},
	"Rejection.reason":             {Text: line},
	"MuxEvent.reason":              {Text: word},
	"MuxEvent.message":             {Text: line},
	"MuxEvent.vip":                 {Text: address},
	"EndpointKey.vip":              {Text: address},
	"EndpointKey.protocol":         {Text: word},
	"BackendHealth.address":        {Text: address},
	"BackendHealth.health":         {Text: word},
	"BackendHealth.reason":         {Text: line},
	"BackendSessions.tunnel":       {Text: address},
	"MuxStatus.xdp_mode":           {Text: word},
	"MuxStatus.interface":          {Text: word},
	"MuxStatus.peers":              {List: 64},
	"MuxStatus.verdicts":           {List: verdicts},
	"MuxStatus.endpoints":          {List: 1 << 17},
	"MuxStatus.warnings":           {List: warnings, Text: line},
	"MuxStatus.pressures":          {List: 1024},
	"MuxStatus.flows":              {List: rows},
	"BGPPeer.address":              {Text: address},
	"BGPPeer.state":                {Text: word},
	"BGPPeer.bfd":                  {Text: word},
	"BGPPeer.last_error":           {Text: line},
	"NamedCounter.name":            {Text: name},
	"VIPPressure.vip":              {Text: address},
	"VIPPressure.tenant":           {Text: name},
	"VIPPressure.cause":            {Text: word},
	"VIPPressure.evidence":         {Text: line},
	"TenantRows.tenant":            {Text: name},
	"HostStatus.uplink":            {Text: word},
	"HostStatus.verdicts":          {List: verdicts},
	"HostStatus.warnings":          {List: warnings, Text: line},
	"HostStatus.snat":              {List: rows},
	"HostStatus.tenant_sessions":   {List: rows},
	"HostStatus.tenant_snat":       {List: rows},
	"SNATUse.vip":                  {Text: address},
	"SNATUse.address":              {Text: address},
	"SNATUse.range_numbers":        {List: 8192},
	"SNATUse.destinations":         {List: 16},
	"SNATDestination.address":      {Text: address},
	"SNATDestination.protocol":     {Text: word},
	"AllocatePortsRequest.name":    {Text: name},
	"AllocatePortsRequest.vip":     {Text: address},
	"AllocatePortsRequest.address": {Text: address},
	"ReleasePortsRequest.name":     {Text: name},
	"ReleasePortsRequest.vip":      {Text: address},
	"ReleasePortsRequest.address":  {Text: address},
	"ReleasePortsRequest.ranges":   {List: 8192},
	"AnswerTaskRequest.name":       {Text: name},
	"AnswerTaskRequest.packets":    {List: 1024},
	"AnswerTaskRequest.error":      {Text: line},
	"CapturedPacket.direction":     {Text: word},
	"CapturedPacket.frame":         {Text: frame},
	"CapturedPacket.verdict":       {Text: word},
	"CapturedPacket.comment":       {Text: line},
	"PacketExplanation.verdict":    {Text: word},
	"PacketExplanation.action":     {Text: word},
	"PacketExplanation.layer":      {Text: word},
	"PacketExplanation.vip":        {Text: name},
	"PacketExplanation.backend":    {Text: address},
	"PacketExplanation.tunnel":     {Text: address},
	"PacketExplanation.frame":      {Text: frame},
	"PacketExplanation.steps":      {List: 64, Text: line},
	"PacketExplanation.workload":   {Text: address},

	// What strangers, managers and admins say.
	"JoinRequest.token":               {Text: name},
	"JoinRequest.role":                {Text: word},
	"JoinRequest.name":                {Text: name},
	"JoinRequest.request":             {Text: request},
	"RenewCertificateRequest.request": {Text: request},
	"CreateTokenRequest.role":         {Text: word},
	"CreateTokenRequest.name":         {Text: name},
	"DeleteTokenRequest.id":           {Text: name},
	"RevokePrincipalRequest.role":     {Text: word},
	"RevokePrincipalRequest.name":     {Text: name},
	"CreateUserRequest.request":       {Text: request},
	"UpdateUserRequest.name":          {Text: name},
	"UpdateUserRequest.bindings":      {List: 1024},
	"RotateUserRequest.name":          {Text: name},
	"RotateUserRequest.request":       {Text: request},
	"DeleteUserRequest.name":          {Text: name},
	"User.name":                       {Text: name},
	"User.bindings":                   {List: 1024},
	"User.method":                     {Text: word},
	"Binding.tenant":                  {Text: name},
	"Binding.role":                    {Text: word},
	"ApplyTenantsRequest.tenants":     {List: resources},
	"GetTenantRequest.name":           {Text: name},
	"DeleteTenantRequest.name":        {Text: name},
	"TenantBackends.prefixes":         {List: 1024, Text: address},
	"TenantBackends.hosts":            {List: 1024, Text: name},
	"CreateTokenRequest.addresses":    {List: 64, Text: address},
	"Tenant.name":                     {Text: name},
	"Tenant.ranges":                   {List: 1024, Text: address},
	"NodeRows.node":                   {Text: name},
	"DeleteManagerRequest.name":       {Text: name},
	"JoinManagerRequest.name":         {Text: name},
	"JoinManagerRequest.address":      {Text: name},
	"JoinManagerRequest.peer_url":     {Text: line},
	"JoinManagerRequest.version":      {Text: word},
	"RegisterNodeRequest.name":        {Text: name},
	"RegisterNodeRequest.role":        {Text: word},
	"RegisterNodeRequest.addresses":   {List: 64, Text: address},
	"RegisterNodeRequest.version":     {Text: word},
	"FollowProgressRequest.name":      {Text: name},
}

const home = "weir.v1."

// OfField is the bound of a field.
func OfField(f protoreflect.FieldDescriptor) Field {
	full := f.FullName()
	b, there := Fields[full]
	if !there && len(full) > len(home) && full[:len(home)] == home {
		b = Fields[full[len(home):]]
	}
	if b.Text == 0 {
		b.Text = defaultText
	}
	if b.List == 0 {
		b.List = defaultList
	}
	return b
}
