package choice

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placechoice"
	"github.com/weirlb/weir/internal/store"
)

// wide is VIP number i with so many backends, the first of them on host1.
func wide(i, backends int) model.VIP {
	vip := model.VIP{Name: fmt.Sprint("vip", i), Hardware: &model.Hardware{Placement: model.PlacementAuto}, Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80}}}
	for b := range backends {
		vip.Endpoints[0].Backends = append(vip.Endpoints[0].Backends, model.Backend{Host: fmt.Sprint("host", b+1), Address: netip.AddrFrom4([4]byte{10, byte(i), byte(b / 250), byte(b % 250)})})
	}
	return vip
}

// Hosts have half of their tables for VIPs whose switches are chosen: 65 536 outer sources, of which one with 512 hosts takes 1664.
// Those that were chosen keep their room, and one with backends elsewhere is not held up.
func TestHostsHaveRoomForWhatIsChosen(t *testing.T) {
	const most = 39
	s := &store.State{}
	var vips []placechoice.VIP
	for i := range most + 2 {
		s.PutVIP(wide(i, 512))
		vips = append(vips, placechoice.VIP{Name: fmt.Sprint("vip", i)})
	}
	s.PutVIP(model.VIP{Name: "small", Endpoints: []model.Endpoint{{Backends: []model.Backend{{Host: "host999"}}}}})
	vips = append(vips, placechoice.VIP{Name: "small"})
	vips[most].Chosen = []string{"sw1"}
	rooms{}.keep(s, vips)
	for i, vip := range vips {
		stays := i == most-1 || i == most+1 // behind the one that was chosen
		if stays != (vip.Unfit != "") || stays && !strings.Contains(vip.Unfit, "host host1 can't steer it: it needs 66560 outer sources, has room for 65536") {
			t.Errorf("%s: %q", vip.Name, vip.Unfit)
		}
	}
}

// Of VIPs that were chosen the one that grew is put back, whatever its name, and the others have what they had. What is kept
// of former backends counts, and what nobody changed is not computed anew.
func TestWhatGrewIsPutBack(t *testing.T) {
	const most = 39
	s := &store.State{}
	var names []string
	for i := range most {
		s.PutVIP(wide(i, 512))
		names = append(names, fmt.Sprint("vip", i))
	}
	s.PutVIP(wide(most, 2))
	names = append(names, fmt.Sprint("vip", most))
	seen := func() (vips []placechoice.VIP) {
		for _, name := range names {
			vips = append(vips, placechoice.VIP{Name: name, At: placechoice.At{Chosen: []string{"sw1"}}})
		}
		return vips
	}
	unfit := func(vips []placechoice.VIP) (all []string) {
		for _, vip := range vips {
			if vip.Unfit != "" {
				all = append(all, vip.Name)
			}
		}
		return all
	}
	r := rooms{}
	first := seen()
	if r.keep(s, first); len(unfit(first)) > 0 {
		t.Fatalf("does not fit: %v", unfit(first))
	}
	before := *r["vip0"]
	again := seen()
	r.keep(s, again)
	if &before.hosts[0] != &r["vip0"].hosts[0] {
		t.Error("what did not change is computed anew")
	}
	// vip0, the first by name, grows.
	grown := wide(0, 512)
	grown.Endpoints = append(grown.Endpoints, wide(most+1, 512).Endpoints[0])
	grown.Endpoints[1].Port = 443
	s.PutVIP(grown)
	s.Written.Set("vip0", 7)
	after := seen()
	if r.keep(s, after); !slices.Equal(unfit(after), []string{"vip0"}) {
		t.Errorf("put back: %v", unfit(after))
	}
	// It shrinks again, and comes back; then its table keeps the slots of backends that it had.
	s.PutVIP(wide(0, 512))
	s.Written.Set("vip0", 8)
	after = seen()
	if r.keep(s, after); len(unfit(after)) > 0 {
		t.Errorf("put back: %v", unfit(after))
	}
	table := desired.Table{Buckets: make([]model.Slot, 1<<16)}
	s.Tables.Set(model.EndpointKey{Protocol: model.TCP, Port: 80}, table)
	s.Written.Set("vip39", 9)
	room := r["vip39"].room
	if r.keep(s, seen()); r["vip39"].room.Buckets <= room.Buckets {
		t.Errorf("a table that grew needs %+v, as before %+v", r["vip39"].room, room)
	}
}

// One that goes to other hosts, and is no larger, takes no room there from those that have it.
func TestWhatGoesToOtherHostsIsPutBack(t *testing.T) {
	const most = 39
	s, r := &store.State{}, rooms{}
	elsewhere := wide(0, 512)
	for b := range elsewhere.Endpoints[0].Backends {
		elsewhere.Endpoints[0].Backends[b].Host += "-elsewhere"
	}
	s.PutVIP(elsewhere)
	for i := range most {
		s.PutVIP(wide(i+1, 512))
	}
	keep := func() (unfit []string) {
		var vips []placechoice.VIP
		for i := range most + 1 {
			vips = append(vips, placechoice.VIP{Name: fmt.Sprint("vip", i), At: placechoice.At{Chosen: []string{"sw1"}}})
		}
		r.keep(s, vips)
		for _, vip := range vips {
			if vip.Unfit != "" {
				unfit = append(unfit, vip.Name)
			}
		}
		return unfit
	}
	if unfit := keep(); len(unfit) > 0 {
		t.Fatalf("does not fit: %v", unfit)
	}
	s.PutVIP(wide(0, 512))
	s.Written.Set("vip0", 7)
	if unfit := keep(); !slices.Equal(unfit, []string{"vip0"}) {
		t.Errorf("put back: %v", unfit)
	}
	s.PutVIP(elsewhere)
	s.Written.Set("vip0", 8)
	if unfit := keep(); len(unfit) > 0 {
		t.Errorf("where it was, put back: %v", unfit)
	}
}
