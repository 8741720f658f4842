package managed

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
)

// Keep returns vips with the backends of field managers that those in their place have, by the name of VIPs. A VIP that names
// such a backend without its field manager is refused: its writer does not know that there is another one. The paths of its
// field errors begin with vips[i].
func Keep(there func(name string) model.VIP, vips []model.VIP) ([]model.VIP, error) {
	var errs model.FieldErrorList
	for i, vip := range vips {
		old := there(vip.Name)
		if !slices.ContainsFunc(old.Endpoints, hasManaged) {
			continue
		}
		kept, err := keep(fmt.Sprintf("vips[%d]", i), old, vip)
		if err == nil {
			err = valid(i, kept)
		}
		if err != nil {
			errs.Add(err)
			continue
		}
		vips = slices.Clone(vips)
		vips[i] = kept
	}
	return vips, errs.Err()
}

func hasManaged(e model.Endpoint) bool {
	return slices.ContainsFunc(e.Backends, func(b model.Backend) bool { return b.FieldManager != "" })
}

// validate says what is wrong with a VIP, as if one writer had written all of it.
func validate(vip model.VIP) error {
	_, err := compile.VIP(compile.VIPMessage(vip))
	return err
}

// valid says what is wrong with a VIP that each of its writers finds right.
func valid(i int, vip model.VIP) error {
	var errs model.FieldErrorList
	for _, f := range model.FieldErrors(validate(vip)) {
		errs.Add(&model.FieldError{Field: fmt.Sprintf("vips[%d].%s", i, f.Field), Reason: f.Reason + ", with the backends of field managers", More: f.More})
	}
	return errs.Err()
}

func keep(path string, old, vip model.VIP) (model.VIP, error) {
	var errs model.FieldErrorList
	vip.Endpoints = slices.Clone(vip.Endpoints)
	for i := range vip.Endpoints {
		e := &vip.Endpoints[i]
		at := endpointOf(old, e.Protocol, e.Port)
		if at < 0 {
			continue
		}
		named := make(map[netip.AddrPort]int, len(e.Backends))
		for j, b := range e.Backends {
			named[b.AddrPort()] = j
		}
		e.Backends = slices.Clone(e.Backends)
		for _, b := range old.Endpoints[at].Backends {
			j, is := named[b.AddrPort()]
			switch {
			case b.FieldManager == "":
			case !is:
				e.Backends = append(e.Backends, b)
			case e.Backends[j].FieldManager != b.FieldManager:
				errs.Refuse(fmt.Sprintf("%s.endpoints[%d].backends[%d]", path, i, j),
					"%s %s: leave it out, or say fieldManager: %s", b.AddrPort(), writer(b), b.FieldManager)
			}
		}
	}
	return vip, errs.Err()
}
