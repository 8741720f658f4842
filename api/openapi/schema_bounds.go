package openapi

import (
	"math"

	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/model/healthcheck"
	"github.com/weirlb/weir/internal/model/vnet"
)

// Bound is what a field that users write holds beyond its type. Values, Pattern, Maximum and MultipleOf are of each
// element of a list.
type Bound struct {
	Values     []string // it is one of these
	Pattern    string
	Maximum    uint64
	MultipleOf uint64
	MinItems   int
	MaxItems   int
	Unique     bool // no two elements are alike
}

// NamePattern is that of names: a DNS label.
const NamePattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"

const macPattern = "^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$"

const communityPattern = "^[0-9]+:[0-9]+(:[0-9]+)?$"

// Bounds are those of fields by message and JSON name, for the OpenAPI document and for the schema of manifests. Fields
// that are not here take what their type holds.
var Bounds = map[string]Bound{
	"weir.v1.VIP.name":        {Pattern: NamePattern},
	"weir.v1.VIP.tenant":      {Pattern: NamePattern},
	"weir.v1.VIP.pool":        {Pattern: NamePattern},
	"weir.v1.VIP.family":      {Values: []string{"ipv4", "ipv6"}},
	"weir.v1.VIP.consistency": {Values: []string{"auto", "flow-table"}},
	"weir.v1.VIP.ping":        {Values: []string{"answer", "ignore"}},
	"weir.v1.VIP.flowLimit":   {Maximum: model.MaxFlowLimit},

	"weir.v1.Fastpath.sources":    {MaxItems: model.MaxFastpathSources},
	"weir.v1.Fastpath.udpPackets": {Maximum: model.MaxUDPPackets},

	"weir.v1.Hardware.placement": {Values: []string{string(model.PlacementNever), string(model.PlacementRequire)}},
	"weir.v1.Hardware.switches":  {Pattern: NamePattern, MaxItems: hardware.MaxSwitches, Unique: true},
	"weir.v1.Hardware.udp":       {Values: []string{string(model.UDPAtHome), string(model.UDPLocal)}},

	"weir.v1.Limits.packets":     {Maximum: model.MaxLimit},
	"weir.v1.Limits.bytes":       {Maximum: model.MaxLimit},
	"weir.v1.Limits.connections": {Maximum: model.MaxLimit},

	"weir.v1.Overload.triggers":     {Values: []string{"overload", "syn-flood"}, MinItems: 1, Unique: true},
	"weir.v1.Overload.steps":        {MaxItems: 3},
	"weir.v1.OverloadStep.action":   {Values: []string{"limit", "scrub", "blackhole"}},
	"weir.v1.OverloadStep.scrubber": {Pattern: NamePattern},

	"weir.v1.Endpoint.protocol":     {Values: []string{"TCP", "UDP", "tcp", "udp"}},
	"weir.v1.Endpoint.port":         {Maximum: math.MaxUint16},
	"weir.v1.Endpoint.backends":     {MaxItems: model.MaxBackends},
	"weir.v1.Endpoint.allUnhealthy": {Values: []string{"keep", "refuse"}},
	"weir.v1.Endpoint.affinity":     {Values: []string{"none", "client"}},
	"weir.v1.Endpoint.synCookies":   {Values: []string{"auto", "always", "never"}},
	"weir.v1.Endpoint.multipath":    {Values: []string{"auto", "off"}},
	"weir.v1.Endpoint.allow":        {MaxItems: model.MaxSources},
	"weir.v1.Endpoint.deny":         {MaxItems: model.MaxSources},
	"weir.v1.Endpoint.allowLists":   {Pattern: NamePattern, MaxItems: model.MaxEndpointLists, Unique: true},
	"weir.v1.Endpoint.denyLists":    {Pattern: NamePattern, MaxItems: model.MaxEndpointLists, Unique: true},

	"weir.v1.Backend.port":         {Maximum: math.MaxUint16},
	"weir.v1.Backend.weight":       {Maximum: model.MaxWeight},
	"weir.v1.HealthCheck.port":     {Maximum: math.MaxUint16},
	"weir.v1.HealthCheck.rise":     {Maximum: healthcheck.MaxCount},
	"weir.v1.HealthCheck.fall":     {Maximum: healthcheck.MaxCount},
	"weir.v1.HTTPCheck.path":       {Pattern: "^/"},
	"weir.v1.HTTPSCheck.path":      {Pattern: "^/"},
	"weir.v1.UDPCheck.answer":      {Values: []string{"required", "optional"}},
	"weir.v1.Backend.fieldManager": {Pattern: NamePattern},

	"weir.v1.SNAT.workloads":   {MaxItems: model.MaxWorkloads},
	"weir.v1.SNAT.preallocate": {Maximum: model.MaxMaxPorts, MultipleOf: model.RangePorts},
	"weir.v1.SNAT.maxPorts":    {Maximum: model.MaxMaxPorts, MultipleOf: model.RangePorts},
	"weir.v1.SNAT.requestRate": {Maximum: model.MaxRequestRate},
	"weir.v1.SNAT.reserved":    {MaxItems: model.MaxReserved},
	"weir.v1.SNAT.except":      {MaxItems: model.MaxExcept},
	"weir.v1.SNAT.filtering":   {Values: []string{"address-and-port-dependent", "address-dependent", "endpoint-independent"}},
	"weir.v1.SNAT.exhausted":   {Values: []string{"reject", "drop"}},

	"weir.v1.AddressPool.name":       {Pattern: NamePattern},
	"weir.v1.AddressPool.prefixes":   {MaxItems: model.MaxPoolParts},
	"weir.v1.AddressPool.exclusions": {MaxItems: model.MaxPoolParts},
	"weir.v1.AddressPool.tips":       {MaxItems: model.MaxPoolParts},
	"weir.v1.AddressPool.tenants":    {Pattern: NamePattern, MaxItems: model.MaxPoolParts},
	"weir.v1.AddressPool.scrubbers":  {MaxItems: model.MaxScrubbers},
	"weir.v1.Scrubber.name":          {Pattern: NamePattern},
	"weir.v1.Scrubber.nextHops":      {MaxItems: 2},
	"weir.v1.Scrubber.communities":   {Pattern: communityPattern, MaxItems: model.MaxCommunities},
	"weir.v1.Diversion.nextHops":     {MaxItems: 2},
	"weir.v1.Diversion.communities":  {Pattern: communityPattern, MaxItems: model.MaxCommunities},

	"weir.v1.PrefixList.name":     {Pattern: NamePattern},
	"weir.v1.PrefixList.tenant":   {Pattern: NamePattern},
	"weir.v1.PrefixList.prefixes": {MaxItems: model.MaxListed},

	"weir.v1.VIP.attachments":    {MaxItems: model.MaxAttachments},
	"weir.v1.Attachment.network": {Pattern: NamePattern},
	"weir.v1.Attachment.mode":    {Values: []string{string(model.ModeBypass), string(model.ModeFullNAT)}},
	"weir.v1.Attachment.nat":     {Values: []string{compile.NATHost, compile.NATMux}},

	"weir.v1.VirtualNetwork.name":           {Pattern: NamePattern},
	"weir.v1.VirtualNetwork.tenant":         {Pattern: NamePattern},
	"weir.v1.VirtualNetwork.vni":            {Maximum: vnet.MaxVNI},
	"weir.v1.VirtualNetwork.prefixes":       {MaxItems: vnet.MaxPrefixes, Unique: true},
	"weir.v1.VirtualNetwork.mtu":            {Maximum: vnet.MaxMTU},
	"weir.v1.VirtualNetwork.workloads":      {MaxItems: vnet.MaxWorkloads},
	"weir.v1.VirtualNetwork.allowedTenants": {Pattern: NamePattern, MaxItems: vnet.MaxAllowed, Unique: true},
	"weir.v1.WithoutAgent.vteps":            {MaxItems: vnet.MaxWithout, Unique: true},
	"weir.v1.WithoutAgent.reply":            {Values: []string{string(vnet.ReplyRelay), string(vnet.ReplyDirect)}},
	"weir.v1.NetworkGateway.mac":            {Pattern: macPattern},
	"weir.v1.NetworkWorkload.name":          {Pattern: NamePattern},
	"weir.v1.NetworkWorkload.addresses":     {MaxItems: vnet.MaxAddresses, Unique: true},
	"weir.v1.NetworkWorkload.mac":           {Pattern: macPattern},
	"weir.v1.NetworkWorkload.interface":     {Pattern: "^[!-~]{1,15}$"},
	"weir.v1.Overlay.name":                  {Values: []string{vnet.OverlayName}},
	"weir.v1.Overlay.addresses":             {MaxItems: 2},
	"weir.v1.Overlay.localPrefixes":         {MaxItems: 2},

	"weir.v1.Tenant.name":             {Pattern: NamePattern},
	"weir.v1.TenantBackends.prefixes": {MaxItems: model.MaxTenantBackends},
	"weir.v1.TenantBackends.hosts":    {Pattern: NamePattern, MaxItems: model.MaxTenantBackends},

	"weir.v1.Fabric.name":                       {Pattern: NamePattern},
	"weir.v1.Fabric.linkShare":                  {Maximum: 100},
	"weir.v1.Clos.containers":                   {Maximum: math.MaxInt32},
	"weir.v1.Clos.torsPerContainer":             {Maximum: math.MaxInt32},
	"weir.v1.Clos.aggsPerContainer":             {Maximum: math.MaxInt32},
	"weir.v1.Clos.cores":                        {Maximum: math.MaxInt32},
	"weir.v1.Clos.torMbitPerS":                  {Maximum: compile.MaxMbitPerS},
	"weir.v1.Clos.aggMbitPerS":                  {Maximum: compile.MaxMbitPerS},
	"weir.v1.TableLimits.hosts":                 {Maximum: math.MaxInt32},
	"weir.v1.TableLimits.ecmp":                  {Maximum: math.MaxInt32},
	"weir.v1.TableLimits.tunnels":               {Maximum: math.MaxInt32},
	"weir.v1.TableLimits.reserve":               {Maximum: 100},
	"weir.v1.FabricLink.mbitPerS":               {Maximum: compile.MaxMbitPerS},
	"weir.v1.FabricLink.backgroundMbitPerS":     {Maximum: compile.MaxMbitPerS},
	"weir.v1.FabricLink.backgroundBackMbitPerS": {Maximum: compile.MaxMbitPerS},
}

// Constrain writes b into the schema of a property. Where the field may be left out, as empty counts as left out in the
// JSON of protobuf, empty fits too.
func (b Bound) Constrain(schema map[string]any, mayBeEmpty bool) {
	if items, ok := schema["items"].(map[string]any); ok {
		b.constrainList(schema)
		schema, mayBeEmpty = items, false
	}
	if len(b.Values) > 0 {
		values := make([]any, 0, len(b.Values)+1)
		if mayBeEmpty {
			values = append(values, "")
		}
		for _, v := range b.Values {
			values = append(values, v)
		}
		schema["enum"] = values
	}
	if b.Pattern != "" {
		schema["pattern"] = b.Pattern
		if mayBeEmpty {
			schema["pattern"] = "^$|" + b.Pattern
		}
	}
	if b.Maximum > 0 && schema["type"] == "integer" {
		schema["maximum"] = b.Maximum
	}
	if b.MultipleOf > 0 {
		schema["multipleOf"] = b.MultipleOf
	}
}

func (b Bound) constrainList(schema map[string]any) {
	if b.MinItems > 0 {
		schema["minItems"] = b.MinItems
	}
	if b.MaxItems > 0 {
		schema["maxItems"] = b.MaxItems
	}
	if b.Unique {
		schema["uniqueItems"] = true
	}
}
