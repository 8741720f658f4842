package resource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired/admission"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/network"
	"github.com/weirlb/weir/internal/resource/query"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/trust"
)

// listEdit is what a call wants of one prefix list.
type listEdit struct {
	list model.PrefixList // as it shall be; of a change of prefixes, the name alone
	// add and remove are the prefixes of a change, if it is one.
	changes     bool
	add, remove []netip.Prefix
}

// replacing are the edits that make lists what they say.
func replacing(lists []model.PrefixList) []listEdit {
	edits := make([]listEdit, 0, len(lists))
	for _, list := range lists {
		edits = append(edits, listEdit{list: list})
	}
	return edits
}

// on is the list that the edit makes of the one in s, in its chunks as far as they are the same.
func (e listEdit) on(s *store.State) model.PrefixList {
	old := s.PrefixLists.At(e.list.Name)
	if e.changes {
		old.Prefixes = old.Prefixes.Change(e.add, e.remove)
		return old
	}
	list := e.list
	list.Prefixes = old.Prefixes.Replace(list.Prefixes)
	return list
}

// errStale says that a list was written since its chunks were made.
var errStale = errors.New("the prefix list was changed by another call")

// staged are lists whose chunks are in the store.
type staged struct {
	base    *store.State       // that they were made on
	lists   []model.PrefixList // all of them
	differ  []model.PrefixList
	applied []*weirv1.AppliedPrefixList
}

// current holds that the lists may be written to s as they are.
func (g staged) current(s *store.State) error {
	for _, list := range g.lists {
		if s.PrefixListWritten.At(list.Name) != g.base.PrefixListWritten.At(list.Name) || !s.HasChunks(list) {
			return errStale
		}
	}
	return nil
}

// withLists has write write the lists that the edits make, once their chunks are in the store. If another call was
// faster, they are made anew. allowed says why not, before anything is written; nil: nothing is in the way.
func (m *writer) withLists(ctx context.Context, edits []listEdit, vips []model.VIP, allowed func(*store.State) error, write func(staged) error) error {
	for {
		g, release, err := m.stageLists(ctx, edits, vips, allowed)
		if err != nil {
			return err
		}
		err = write(g)
		release()
		if !errors.Is(err, errStale) || ctx.Err() != nil {
			return err
		}
	}
}

func (m *writer) stageLists(ctx context.Context, edits []listEdit, vips []model.VIP, allowed func(*store.State) error) (g staged, release func(), err error) {
	g = edited(m.Store.State(), edits)
	var releases []func()
	release = func() {
		for _, r := range releases {
			r()
		}
	}
	if allowed != nil {
		if err := allowed(g.base); err != nil {
			return g, nil, err
		}
	}
	if err := m.admitLists(ctx, g.base, g.lists, vips); err != nil {
		return g, nil, err
	}
	for _, list := range g.differ {
		held, err := m.Store.Chunks.Stage(ctx, list)
		if err != nil {
			release()
			return g, nil, err
		}
		releases = append(releases, held)
	}
	return g, release, nil
}

// edited are the lists that the edits make of those in s. Their chunks are not in the store yet.
func edited(s *store.State, edits []listEdit) staged {
	g := staged{base: s}
	for _, edit := range edits {
		list := edit.on(s)
		old, had := s.PrefixLists.Get(list.Name)
		did := &weirv1.AppliedPrefixList{Name: list.Name, Change: rpc.Created}
		switch {
		case had && old.Tenant == list.Tenant && maps.Equal(old.Labels, list.Labels) && old.Prefixes.Equal(list.Prefixes):
			did.Change = rpc.Unchanged
		case had:
			did.Change = rpc.Updated
		}
		if did.Change != rpc.Unchanged {
			did.Added, did.Removed = uint32(len(list.Prefixes.Minus(old.Prefixes))), uint32(len(old.Prefixes.Minus(list.Prefixes)))
			g.differ = append(g.differ, list)
		}
		g.lists, g.applied = append(g.lists, list), append(g.applied, did)
	}
	return g
}

// admitLists says whether the caller may write the lists, and whether they fit together, with all others, with VIPs
// that are written with them, and with what their tenants may have.
func (m *writer) admitLists(ctx context.Context, s *store.State, lists []model.PrefixList, vips []model.VIP) error {
	caller := trust.FromContext(ctx)
	for i, list := range lists {
		field := fmt.Sprintf("prefixLists[%d].", i)
		old, there := s.PrefixLists.Get(list.Name)
		if there && !caller.Anonymous() && !caller.May(trust.Operator, authz.PrefixListTenant(old.Tenant)) {
			return rpc.NewError(connect.CodePermissionDenied, &model.FieldError{Field: field + "name", Reason: list.Name + " is taken: take another name"})
		}
		if n := list.Prefixes.Len(); n > model.MaxListed {
			return &model.FieldError{Field: field + "prefixes", Reason: fmt.Sprintf("must be at most %d, would be %d", model.MaxListed, n)}
		}
	}
	return admission.PrefixLists(s.State, lists, vips, m.Tenants())
}

// happenedToLists tells of lists that were written.
func (m *writer) happenedToLists(ctx context.Context, applied []*weirv1.AppliedPrefixList, generation model.Generation) {
	for _, a := range applied {
		if a.Change == rpc.Unchanged {
			continue
		}
		m.Log.InfoContext(ctx, "prefix list applied", "name", a.Name, "change", a.Change, "generation", generation)
		m.Recorder.RecordCall(ctx, eventlog.Event{
			Kind: events.KindPrefixList, Object: a.Name, Tenant: m.Store.State().PrefixLists.At(a.Name).Tenant, Reason: reason.OfChange[a.Change],
			Message: fmt.Sprintf("prefix list %s: %d prefixes added, %d removed", a.Change, a.Added, a.Removed),
		})
	}
}

// editList makes one edit if allowed does not say why not.
func (m *PrefixLists) editList(ctx context.Context, edit listEdit, allowed func(*store.State) error) (
	list *weirv1.PrefixList, did *weirv1.AppliedPrefixList, generation model.Generation, err error,
) {
	var applied []*weirv1.AppliedPrefixList
	var written staged
	err = m.withLists(ctx, []listEdit{edit}, nil, allowed, func(g staged) (err error) {
		applied, written = g.applied, g
		generation, err = m.Store.Update(ctx, func(s *store.State) (store.Change, error) {
			if err := errors.Join(allowed(s), g.current(s)); err != nil {
				return store.Change{}, err
			}
			if err := m.admitLists(ctx, s, g.lists, nil); err != nil {
				return store.Change{}, err
			}
			return store.Change{PrefixLists: g.differ}, nil
		})
		return err
	})
	if err != nil {
		return nil, nil, 0, apierr.ToConnect(apierr.TrimField("prefixLists[0].", err))
	}
	m.happenedToLists(ctx, applied, generation)
	list = listWithStatus(ctx, m.Store.State(), written.lists[0])
	list.ResourceVersion = network.VersionOf(applied[0].GetChange(), generation, written.base.PrefixListWritten.At(edit.list.Name))
	return list, applied[0], generation, nil
}

// CreatePrefixList creates a list.
func (m *PrefixLists) CreatePrefixList(ctx context.Context, r *weirv1.CreatePrefixListRequest) (*weirv1.CreatePrefixListResponse, error) {
	list, err := readList(r.GetPrefixList())
	if err != nil {
		return nil, err
	}
	written, _, generation, err := m.editList(ctx, listEdit{list: list}, func(s *store.State) error {
		if s.PrefixLists.Has(list.Name) {
			return connect.NewError(connect.CodeAlreadyExists,
				fmt.Errorf("there is a prefix list %s already: update it, or take another name", list.Name))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &weirv1.CreatePrefixListResponse{PrefixList: written, Generation: uint64(generation)}, nil
}

// UpdatePrefixList replaces a list.
func (m *PrefixLists) UpdatePrefixList(ctx context.Context, r *weirv1.UpdatePrefixListRequest) (*weirv1.UpdatePrefixListResponse, error) {
	if err := apierr.CheckName(r.GetName(), r.GetPrefixList().GetName()); err != nil {
		return nil, apierr.ToConnect(err)
	}
	if r.GetPrefixList() != nil {
		r.PrefixList.Name = r.GetName()
	}
	list, err := readList(r.GetPrefixList())
	if err != nil {
		return nil, err
	}
	written, _, generation, err := m.editList(ctx, listEdit{list: list}, func(s *store.State) error {
		return currentList(ctx, s, r.GetName(), r.GetPrefixList().GetResourceVersion())
	})
	if err != nil {
		return nil, err
	}
	return &weirv1.UpdatePrefixListResponse{PrefixList: written, Generation: uint64(generation)}, nil
}

func readList(p *weirv1.PrefixList) (model.PrefixList, error) {
	if err := compile.Known(p); err != nil {
		return model.PrefixList{}, apierr.ToConnect(err)
	}
	list, err := compile.PrefixList(p)
	if err != nil {
		return list, apierr.ToConnect(err)
	}
	return list, nil
}

// ChangePrefixList puts prefixes into a list and takes others out of it.
func (m *PrefixLists) ChangePrefixList(ctx context.Context, r *weirv1.ChangePrefixListRequest) (*weirv1.ChangePrefixListResponse, error) {
	add, errAdd := compile.ListedPrefixes("add", r.GetAdd())
	remove, errRemove := compile.ListedPrefixes("remove", r.GetRemove())
	if err := errors.Join(errAdd, errRemove); err != nil {
		return nil, apierr.ToConnect(err)
	}
	if len(add)+len(remove) == 0 {
		return nil, apierr.ToConnect(&model.FieldError{Field: "add", Reason: "must have at least one, or remove must"})
	}
	edit := listEdit{list: model.PrefixList{Name: r.GetName()}, changes: true, add: add, remove: remove}
	written, did, generation, err := m.editList(ctx, edit, func(s *store.State) error {
		return currentList(ctx, s, r.GetName(), r.GetResourceVersion())
	})
	if err != nil {
		return nil, err
	}
	return &weirv1.ChangePrefixListResponse{
		PrefixList: written, Generation: uint64(generation), Added: did.GetAdded(), Removed: did.GetRemoved(),
	}, nil
}

// DeletePrefixList deletes a list that no endpoint names.
func (m *PrefixLists) DeletePrefixList(ctx context.Context, r *weirv1.DeletePrefixListRequest) (*weirv1.DeletePrefixListResponse, error) {
	tenant := ""
	generation, err := m.Store.Update(ctx, func(s *store.State) (store.Change, error) {
		if err := currentList(ctx, s, r.GetName(), r.GetResourceVersion()); err != nil {
			return store.Change{}, err
		}
		// The name may have come to another tenant since the call was permitted.
		if err := authz.PermitPrefixList(trust.FromContext(ctx), s, trust.Operator, r.GetName()); err != nil {
			return store.Change{}, err
		}
		if err := admission.PrefixListRemoval(s.State, r.GetName(), authz.CanViewVIP(ctx)); err != nil {
			return store.Change{}, rpc.NewError(connect.CodeFailedPrecondition, err)
		}
		tenant = s.PrefixLists.At(r.GetName()).Tenant
		return store.Change{DeletePrefixLists: []string{r.GetName()}}, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	m.Log.InfoContext(ctx, "prefix list deleted", "name", r.GetName(), "generation", generation)
	m.Recorder.RecordCall(ctx, eventlog.Event{Kind: events.KindPrefixList, Object: r.GetName(), Tenant: tenant, Reason: reason.Deleted, Message: "prefix list deleted"})
	return &weirv1.DeletePrefixListResponse{}, nil
}

// currentList holds that the list is there, and of the version, unless that is 0.
func currentList(ctx context.Context, s *store.State, name string, version uint64) error {
	there := uint64(s.PrefixListWritten.At(name))
	switch {
	case there == 0 || !authz.CanViewPrefixList(ctx, s.PrefixLists.At(name)):
		return noList(ctx, s, name)
	case version == 0 || version == there:
		return nil
	}
	return apierr.VersionConflict("prefix list "+name, there, version, codec.Record{})
}

func noList(ctx context.Context, s *store.State, name string) error {
	return apierr.NotFound("prefix list", name, s.PrefixLists.Map, func(l model.PrefixList) bool { return authz.CanViewPrefixList(ctx, l) })
}

// ListPrefixLists lists prefix lists by name.
func (m *PrefixLists) ListPrefixLists(ctx context.Context, r *weirv1.ListPrefixListsRequest) (*weirv1.ListPrefixListsResponse, error) {
	state := m.Store.State()
	f, err := query.NewFilter(r.GetTenant(), r.GetLabelSelector(), r.GetNamePrefix())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	page, err := query.NewPage(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	found := query.Collect[*weirv1.PrefixList](page)
	for name, list := range state.PrefixLists.From(f.From(page.After)) {
		if !f.InRange(name) {
			break
		}
		fits := f.Fits(list.Tenant, list.Labels) && authz.CanViewPrefixList(ctx, list)
		if fits && !found.Add(name, func() *weirv1.PrefixList { return listWithStatus(ctx, state, list) }) {
			break
		}
	}
	return &weirv1.ListPrefixListsResponse{PrefixLists: found.All, NextPageToken: found.Next}, nil
}

// GetPrefixList returns one list with its prefixes.
func (m *PrefixLists) GetPrefixList(ctx context.Context, r *weirv1.GetPrefixListRequest) (*weirv1.GetPrefixListResponse, error) {
	state := m.Store.State()
	list, there := state.PrefixLists.Get(r.GetName())
	if !there || !authz.CanViewPrefixList(ctx, list) {
		return nil, noList(ctx, state, r.GetName())
	}
	p := listWithStatus(ctx, state, list)
	p.Prefixes = compile.PrefixSetTexts(list.Prefixes)
	return &weirv1.GetPrefixListResponse{PrefixList: p}, nil
}

// listWithStatus writes a list with all that is output only, and without its prefixes.
func listWithStatus(ctx context.Context, s *store.State, list model.PrefixList) *weirv1.PrefixList {
	p := compile.PrefixListMessage(list)
	p.ResourceVersion = uint64(s.PrefixListWritten.At(list.Name))
	p.Status = &weirv1.PrefixListStatus{
		Ipv4: uint32(list.Prefixes.Count(model.IPv4)), Ipv6: uint32(list.Prefixes.Count(model.IPv6)),
	}
	for vip := range s.VIPsUsingList(list.Name) {
		if authz.CanView(ctx, vip.Tenant) {
			p.Status.Vips = append(p.Status.Vips, vip.Name)
		}
	}
	return p
}
