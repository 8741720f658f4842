package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"

	"go.yaml.in/yaml/v4"

	"github.com/weirlb/weir/internal/model"
)

// Document is a VIP in the shape of its manifest, to be encoded.
type Document struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       spec     `json:"spec"`
	// Status is what the manager says of the VIP; Parse passes over it.
	Status any `json:"status,omitempty"`
}

type metadata struct {
	Name            string            `json:"name"`
	Tenant          string            `json:"tenant"`
	Labels          map[string]string `json:"labels,omitempty"`
	ResourceVersion uint64            `json:"resourceVersion,omitempty"`
}

type spec struct {
	Address     netip.Addr        `json:"address,omitzero"`
	Pool        string            `json:"pool,omitempty"`
	Family      model.Family      `json:"family,omitempty"`
	Consistency model.Consistency `json:"consistency,omitempty"`
	Ping        model.Ping        `json:"ping,omitempty"`
	FlowLimit   uint32            `json:"flowLimit,omitempty"`
	Fastpath    *fastpathSpec     `json:"fastpath,omitempty"`
	Limits      *model.Limits     `json:"limits,omitempty"`
	Overload    *overloadSpec     `json:"overload,omitempty"`
	Endpoints   []endpointSpec    `json:"endpoints,omitempty"`
	SNAT        *snatSpec         `json:"snat,omitempty"`
}

type endpointSpec struct {
	Protocol     model.Protocol     `json:"protocol"`
	Port         portSpec           `json:"port"`
	Backends     []backendSpec      `json:"backends,omitempty"`
	HealthCheck  *healthCheckSpec   `json:"healthCheck,omitempty"`
	AllUnhealthy model.AllUnhealthy `json:"allUnhealthy,omitempty"`
	Affinity     model.Affinity     `json:"affinity,omitempty"`
	IdleTimeout  string             `json:"idleTimeout,omitempty"`
	SYNCookies   model.SYNCookies   `json:"synCookies,omitempty"`
	Allow        []netip.Prefix     `json:"allow,omitempty"`
	Deny         []netip.Prefix     `json:"deny,omitempty"`
	AllowLists   []string           `json:"allowLists,omitempty"`
	DenyLists    []string           `json:"denyLists,omitempty"`
}

// portSpec is the port of an endpoint: a number, or "all".
type portSpec uint16

// MarshalJSON writes the port as Parse reads it.
func (p portSpec) MarshalJSON() ([]byte, error) {
	if p == model.AllPorts {
		return json.Marshal(allPorts)
	}
	return json.Marshal(uint16(p))
}

type backendSpec struct {
	Address netip.Addr `json:"address"`
	Port    uint16     `json:"port,omitempty"` // left out for all ports
	Host    string     `json:"host"`
	Weight  uint32     `json:"weight"`
	Tunnel  netip.Addr `json:"tunnel,omitzero"`
}

type healthCheckSpec struct {
	TCP      *struct{} `json:"tcp,omitempty"`
	HTTP     *httpSpec `json:"http,omitempty"`
	Port     uint16    `json:"port,omitempty"`
	Interval string    `json:"interval"`
	Timeout  string    `json:"timeout"`
	Rise     uint32    `json:"rise"`
	Fall     uint32    `json:"fall"`
}

type httpSpec struct {
	Path string `json:"path"`
	Host string `json:"host,omitempty"`
}

// NewDocument writes vip with all defaults in place. version is that of the store, 0 for none.
func NewDocument(vip model.VIP, version uint64, status any) Document {
	d := Document{
		APIVersion: Version, Kind: Kind, Status: status,
		Metadata: metadata{Name: vip.Name, Tenant: vip.Tenant, Labels: vip.Labels, ResourceVersion: version},
		Spec:     spec{Address: vip.Address, Pool: vip.Pool, Family: vip.Family, Consistency: vip.Consistency, Ping: vip.Ping, FlowLimit: vip.FlowLimit},
	}
	if f := vip.Fastpath; f != nil {
		d.Spec.Fastpath = &fastpathSpec{Sources: f.Sources, UDPPackets: f.UDPPackets}
	}
	d.Spec.Limits, d.Spec.Overload = vip.Limits, writeOverload(vip.Overload)
	d.Spec.SNAT = writeSNAT(vip.SNAT)
	for _, e := range vip.Endpoints {
		written := endpointSpec{
			Protocol: e.Protocol, Port: portSpec(e.Port), AllUnhealthy: e.AllUnhealthy, HealthCheck: writeCheck(e.HealthCheck),
			Affinity: e.Affinity, SYNCookies: e.SYNCookies, Allow: e.Allow, Deny: e.Deny,
			AllowLists: e.AllowLists, DenyLists: e.DenyLists,
		}
		if e.IdleTimeout != 0 {
			written.IdleTimeout = e.IdleTimeout.String()
		}
		for _, b := range e.Backends {
			written.Backends = append(written.Backends, backendSpec(b))
		}
		d.Spec.Endpoints = append(d.Spec.Endpoints, written)
	}
	return d
}

func writeCheck(c *model.HealthCheck) *healthCheckSpec {
	if c == nil {
		return nil
	}
	written := &healthCheckSpec{
		Port: c.Port, Interval: c.Interval.String(), Timeout: c.Timeout.String(), Rise: c.Rise, Fall: c.Fall,
	}
	switch c.Type {
	case model.CheckTCP:
		written.TCP = &struct{}{}
	case model.CheckHTTP:
		written.HTTP = &httpSpec{Path: c.Path, Host: c.Host}
	}
	return written
}

// Encode writes one YAML document for each document given.
func Encode[D Document | PoolDocument | PrefixListDocument | TenantDocument](documents ...D) ([]byte, error) {
	var out bytes.Buffer
	for i, d := range documents {
		text, err := json.Marshal(d)
		if err != nil {
			return nil, fmt.Errorf("encode document %d: %w", i, err)
		}
		block, err := Block(text)
		if err != nil {
			return nil, fmt.Errorf("encode document %d: %w", i, err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(block)
	}
	return out.Bytes(), nil
}

// Block turns JSON into YAML as people write it, with the fields in the same order.
func Block(text []byte) ([]byte, error) {
	var node yaml.Node
	if err := yaml.Load(text, &node); err != nil {
		return nil, fmt.Errorf("turn JSON into YAML: %w", err)
	}
	unstyle(&node)
	return yaml.Dump(&node)
}

// unstyle forgets quotes and braces; empty lists and objects keep theirs.
func unstyle(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode || len(n.Content) > 0 {
		n.Style = 0
	}
	for _, child := range n.Content {
		unstyle(child)
	}
}
