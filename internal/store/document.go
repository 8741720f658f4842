package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// Keys. Those that end in a slash are prefixes.
const (
	root           = "/weir/v1/"
	keyGeneration  = root + "generation"
	keyHash        = root + "hash-key"
	keyFastpath    = root + "fastpath-keys"
	keySYNSecrets  = root + "syn-secrets"
	keyLeader      = root + "leader"
	keyRestored    = root + "restored"
	prefixManagers = root + "managers/"
	prefixVIPs     = root + "vips/"
	prefixTables   = root + "tables/"
	prefixNodes    = root + "nodes/"
	prefixStatus   = root + "status/"
	prefixHealth   = root + "health/"
	prefixStreams  = root + "streams/"
	prefixFenced   = root + "fenced/"
	prefixReady    = root + "ready/"
	prefixSteps    = root + "steps/"
)

// tableKey is where the table of an endpoint lies: tables/203.0.113.10/TCP/80.
func tableKey(k model.EndpointKey) string {
	return fmt.Sprintf("%s%s/%s/%d", prefixTables, k.VIP, k.Protocol, k.Port)
}

// parseTableKey reads what tableKey wrote.
func parseTableKey(key string) (model.EndpointKey, error) {
	parts := strings.Split(strings.TrimPrefix(key, prefixTables), "/")
	if len(parts) != 3 {
		return model.EndpointKey{}, fmt.Errorf("read key %s of the store: it names no endpoint", key)
	}
	vip, err1 := netip.ParseAddr(parts[0])
	protocol, err2 := model.ParseProtocol(parts[1])
	port, err3 := strconv.ParseUint(parts[2], 10, 16)
	if err := errors.Join(err1, err2, err3); err != nil {
		return model.EndpointKey{}, fmt.Errorf("read key %s of the store: %w", key, err)
	}
	return model.EndpointKey{VIP: vip, Protocol: protocol, Port: uint16(port)}, nil
}

// The versions of the documents of this package. A VIP that names prefix lists is of listsSchema: a manager that knows
// none must not take it for one that everybody may come to.
const (
	schema      = 1
	listsSchema = 2
)

// document is the frame of every value.
type document[T any] struct {
	Schema int `json:"schema"`
	Value  T   `json:"value"`
}

func encode[T any](value T) (string, error) {
	data, err := json.Marshal(document[T]{Schema: schema, Value: value})
	return string(data), err
}

// encodeVIP is encode in the schema that the VIP needs.
func encodeVIP(vip recordedVIP) (string, error) {
	d := document[recordedVIP]{Schema: schema, Value: vip}
	for _, e := range vip.Endpoints {
		if len(e.AllowLists)+len(e.DenyLists) > 0 {
			d.Schema = listsSchema
		}
	}
	data, err := json.Marshal(d)
	return string(data), err
}

func decode[T any](key string, data []byte) (T, error) {
	var d document[T]
	err := json.Unmarshal(data, &d)
	if err != nil {
		// One of another schema may not look like this at all.
		var head struct {
			Schema int `json:"schema"`
		}
		if json.Unmarshal(data, &head) == nil {
			d.Schema = head.Schema
		}
	}
	newest := schema
	if strings.HasPrefix(key, prefixVIPs) {
		newest = listsSchema
	}
	switch {
	case d.Schema > newest || err == nil && d.Schema < schema:
		return d.Value, fmt.Errorf("read %s of the store: its schema is %d, this weir-manager knows %d: run a newer one",
			key, d.Schema, newest)
	case err != nil:
		return d.Value, fmt.Errorf("read %s of the store: %w", key, err)
	}
	return d.Value, nil
}

// NodeStatus is what a node said last.
type NodeStatus struct {
	Seen       time.Time        `json:"seen"`
	Generation model.Generation `json:"generation"` // that it runs
	Rejected   model.Generation `json:"rejected,omitempty"`
	Reason     string           `json:"reason,omitempty"` // why it rejected that generation
	Detail     json.RawMessage  `json:"detail,omitempty"` // written and read by the store's user
	Counted    Counted          `json:"counted,omitzero"`
}

// Counted is what of a host's last count of connections decides about the end of moves.
type Counted struct {
	At         time.Time              `json:"at"`              // by the clock of the manager that it was told
	Generation model.Generation       `json:"generation"`      // that the host ran
	Ceded      []model.HostBackendKey `json:"ceded,omitempty"` // the backends that have one in a bucket that they ceded
}

// Equal says whether both are the same count.
func (c Counted) Equal(other Counted) bool {
	return c.At.Equal(other.At) && c.Generation == other.Generation
}
