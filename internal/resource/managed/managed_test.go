package managed

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

func backend(last byte, manager string) model.Backend {
	return model.Backend{Address: netip.AddrFrom4([4]byte{10, 3, 1, last}), Port: 80, Host: "host1", Weight: 1, FieldManager: manager}
}

func web(backends ...model.Backend) model.VIP {
	return model.VIP{
		Name: "web", Tenant: "default", Address: netip.MustParseAddr("203.0.113.1"),
		Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80, Backends: backends}},
	}
}

func message(last byte, weight uint32) *weirv1.Backend {
	b := backend(last, "")
	return &weirv1.Backend{Address: b.Address.String(), Host: b.Host, Weight: proto.Uint32(weight)}
}

// names are "11", "12:scaler" and so on.
func names(vip model.VIP) string {
	var all []string
	for _, b := range vip.Endpoints[0].Backends {
		name := b.Address.String()[len("10.3.1."):]
		if b.FieldManager != "" {
			name += ":" + b.FieldManager
		}
		if b.Weight != 1 {
			name += "*"
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// A backend has one writer: each call changes its manager's own, and another's by force alone.
func TestOneWriterEach(t *testing.T) {
	before := web(backend(11, ""), backend(12, "scaler"), backend(13, "scaler"), backend(14, "other"))
	for _, c := range []struct {
		name    string
		request *weirv1.PatchBackendsRequest
		want    string // or the error
		effect  Effect
	}{
		{"adds", &weirv1.PatchBackendsRequest{Set: []*weirv1.Backend{message(15, 1)}}, "11 12:scaler 13:scaler 14:other 15:scaler", Effect{Added: 1, Managed: 3}},
		{"again", &weirv1.PatchBackendsRequest{Set: []*weirv1.Backend{message(12, 1)}}, "11 12:scaler 13:scaler 14:other", Effect{Managed: 2}},
		{"changes", &weirv1.PatchBackendsRequest{Set: []*weirv1.Backend{message(12, 0)}}, "11 12:scaler* 13:scaler 14:other", Effect{Updated: 1, Managed: 2}},
		{"removes", &weirv1.PatchBackendsRequest{Remove: []*weirv1.Backend{message(12, 1), message(99, 1)}}, "11 13:scaler 14:other", Effect{Removed: 1, Managed: 1}},
		{"replaces", &weirv1.PatchBackendsRequest{Set: []*weirv1.Backend{message(15, 1)}, Replace: true}, "11 14:other 15:scaler", Effect{Added: 1, Removed: 2, Managed: 1}},
		{"leaves none", &weirv1.PatchBackendsRequest{Replace: true}, "11 14:other", Effect{Removed: 2}},
		{"the VIP's", &weirv1.PatchBackendsRequest{Set: []*weirv1.Backend{message(11, 0)}}, "set[0]: 10.3.1.11:80 is written with the VIP: take it over by force, or leave it out", Effect{}},
		{"the same as the VIP's", &weirv1.PatchBackendsRequest{Set: []*weirv1.Backend{message(11, 1)}}, "set[0]: 10.3.1.11:80 is written with the VIP: take it over by force, or leave it out", Effect{}},
		{"another's", &weirv1.PatchBackendsRequest{Remove: []*weirv1.Backend{message(14, 1)}}, "remove[0]: 10.3.1.14:80 is of field manager other: take it over by force, or leave it out", Effect{}},
		{"by force", &weirv1.PatchBackendsRequest{Set: []*weirv1.Backend{message(11, 1)}, Remove: []*weirv1.Backend{message(14, 1)}, Force: true}, "11:scaler 12:scaler 13:scaler", Effect{Updated: 1, Removed: 1, Managed: 3}},
		{"no port such", &weirv1.PatchBackendsRequest{Port: 81, Replace: true}, "VIP web has no endpoint TCP 81", Effect{}},
		{"other family", &weirv1.PatchBackendsRequest{Set: []*weirv1.Backend{{Address: "fd00::1", Host: "host1"}}}, "endpoints[0].backends[4].address: must be of the VIP's family (IPv4), is fd00::1", Effect{}},
		{"nothing", &weirv1.PatchBackendsRequest{}, "set: name backends in set or in remove, or say replace", Effect{}},
		{"both", &weirv1.PatchBackendsRequest{Set: []*weirv1.Backend{message(15, 1)}, Remove: []*weirv1.Backend{message(15, 1)}}, "remove[0]: 10.3.1.15:80 is in set too", Effect{}},
		{"twice", &weirv1.PatchBackendsRequest{Set: []*weirv1.Backend{message(15, 1), message(15, 2)}}, "set[1]: is 10.3.1.15:80 again", Effect{}},
		{"in the name of another", &weirv1.PatchBackendsRequest{Set: []*weirv1.Backend{{Address: "10.3.1.15", Host: "host1", FieldManager: "other"}}}, "set[0].fieldManager: must be that of the call", Effect{}},
	} {
		r := c.request
		r.Name, r.FieldManager = "web", "scaler"
		if r.GetPort() == 0 {
			r.Port = 80
		}
		patch, err := Read(r)
		var vip model.VIP
		var effect Effect
		if err == nil {
			vip, effect, err = patch.On(before)
		}
		switch {
		case err != nil:
			if !strings.HasPrefix(err.Error(), c.want) || c.effect != (Effect{}) {
				t.Errorf("%s: %v, want %s", c.name, err, c.want)
			}
		case names(vip) != c.want || effect != c.effect:
			t.Errorf("%s: %s with %+v, want %s with %+v", c.name, names(vip), effect, c.want, c.effect)
		}
		if names(before) != "11 12:scaler 13:scaler 14:other" {
			t.Fatalf("%s: the VIP itself was changed to %s", c.name, names(before))
		}
	}
	if _, err := Read(&weirv1.PatchBackendsRequest{Port: 80, Replace: true}); err == nil {
		t.Error("a patch in nobody's name")
	}
}

// Who writes the VIP keeps what managers wrote, changes it by naming them, and does not take it over unawares.
func TestAVIPKeepsManagedBackends(t *testing.T) {
	old := web(backend(11, ""), backend(12, "scaler"))
	there := func(string) model.VIP { return old }
	drained := backend(12, "scaler")
	drained.Weight = 0
	same := backend(13, "")
	same.Tunnel = backend(12, "").Address
	for _, c := range []struct {
		name string
		vip  model.VIP
		want string
	}{
		{"leaves them out", web(backend(11, "")), "11 12:scaler"},
		{"another of its own", web(backend(13, "")), "12:scaler 13"},
		{"none of its own", web(), "12:scaler"},
		{"drains one by name", web(drained), "12:scaler*"},
		{"takes one unawares", web(backend(12, "")), "vips[0].endpoints[0].backends[0]: 10.3.1.12:80 is of field manager scaler: leave it out, or say fieldManager: scaler"},
		{"gives it to another", web(backend(12, "other")), "vips[0].endpoints[0].backends[0]: 10.3.1.12:80 is of field manager scaler"},
		{"does not fit with one", web(same), "vips[0].endpoints[0].backends[1].tunnel: 10.3.1.12 is that of backends[0] too: give each its own, with the backends of field managers"},
	} {
		kept, err := Keep(there, []model.VIP{c.vip})
		switch {
		case err != nil:
			if !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", c.name, err, c.want)
			}
		case names(kept[0]) != c.want:
			t.Errorf("%s: %s, want %s", c.name, names(kept[0]), c.want)
		}
	}
	moved := web(backend(11, ""))
	moved.Endpoints[0].Port = 81
	if kept, err := Keep(there, []model.VIP{moved}); err != nil || names(kept[0]) != "11" {
		t.Errorf("an endpoint that is gone left its backends: %v, %v", kept, err)
	}
	var missing *NoEndpointError
	if _, _, err := (Patch{Protocol: model.UDP, Port: 80}).On(old); !errors.As(err, &missing) {
		t.Errorf("no endpoint: %v", err)
	}
}
