package nodeconfig

import (
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// A host takes clients in networks as the endpoint does; without an attachment, or without lists, it is told nothing.
func TestNetworkClientsAreThoseOfTheEndpoint(t *testing.T) {
	prefixes := func(texts ...string) (all []netip.Prefix) {
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	vip := model.VIP{Address: netip.MustParseAddr("203.0.113.1"), Attachments: []model.Attachment{{Network: "acme"}}}
	client, other := netip.MustParseAddr("192.168.0.5"), netip.MustParseAddr("192.168.0.6")
	for name, c := range map[string]struct {
		endpoint           model.Endpoint
		takes, takesOthers bool
	}{
		"no lists":     {model.Endpoint{}, true, true},
		"denied":       {model.Endpoint{Deny: prefixes("192.168.0.5/32", "10.0.0.0/8")}, false, true},
		"allowed":      {model.Endpoint{Allow: prefixes("192.168.0.5/32")}, true, false},
		"both":         {model.Endpoint{Allow: prefixes("192.168.0.0/24"), Deny: prefixes("192.168.0.4/31")}, false, true},
		"all denied":   {model.Endpoint{Deny: prefixes("0.0.0.0/0")}, false, false},
		"an empty set": {model.Endpoint{AllowLists: []string{"nobody"}}, false, false},
	} {
		var b model.HostBackend
		b.Allow, b.Deny = networkClients(desired.PrefixLists{}, vip, c.endpoint)
		if b.Takes(client) != c.takes || b.Takes(other) != c.takesOthers {
			t.Errorf("%s: by %v but %v takes %t and %t", name, b.Allow, b.Deny, b.Takes(client), b.Takes(other))
		}
	}
	vip.Attachments = nil
	if allow, deny := networkClients(desired.PrefixLists{}, vip, model.Endpoint{Deny: prefixes("0.0.0.0/0")}); allow != nil || deny != nil {
		t.Errorf("without an attachment the host is told %v and %v", allow, deny)
	}
}
