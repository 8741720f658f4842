package audit

import (
	"context"
	"log/slog"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/trust"
)

type memory struct{ entries []trust.AuditEntry }

func (m *memory) Append(_ context.Context, entries []trust.AuditEntry) error {
	m.entries = append(m.entries, entries...)
	return nil
}

func (m *memory) Prune(context.Context) error { return nil }

// Changes and refusals are recorded; reads and dry runs that succeed are not.
func TestCallsAreRecorded(t *testing.T) {
	ann := trust.Identity{Kind: trust.User, Name: "ann"}
	for _, c := range []struct {
		what, procedure string
		message         any
		err             error
		want            string // result and subject; empty: nothing is recorded
	}{
		{"a change", weirv1connect.WeirServiceDeleteVIPProcedure, &weirv1.DeleteVIPRequest{Name: "shop"}, nil, "ok vip/shop"},
		{"a read", weirv1connect.WeirServiceGetVIPProcedure, &weirv1.GetVIPRequest{Name: "shop"}, nil, ""},
		{"a dry run", weirv1connect.WeirServiceApplyVIPsProcedure, &weirv1.ApplyVIPsRequest{DryRun: true}, nil, ""},
		{
			"a refused read", weirv1connect.WeirServiceGetVIPProcedure, &weirv1.GetVIPRequest{Name: "shop"},
			connect.NewError(connect.CodePermissionDenied, nil), "permission_denied vip/shop",
		},
	} {
		stored := &memory{}
		log := New("m1", stored, slog.New(slog.DiscardHandler))
		call := NewCall(ann)
		ctx, cancel := context.WithCancel(WithCall(t.Context(), call))
		Begin(ctx, c.procedure, c.message)
		End(ctx, c.err)
		log.Record(call, "/", http.Header{}, http.StatusOK)
		cancel()
		if err := log.Run(ctx); err != nil { // writes what is queued
			t.Fatal(err)
		}
		got := ""
		for _, e := range stored.entries {
			got += e.Result + " " + e.Subject
		}
		if got != c.want {
			t.Errorf("%s: recorded %q, want %q", c.what, got, c.want)
		}
	}
}

// A request that the protocol refused never became a call.
func TestRefusalsOfTheProtocol(t *testing.T) {
	for _, c := range []struct {
		header http.Header
		status int
		want   string
	}{
		{http.Header{}, http.StatusOK, ""},
		{http.Header{}, http.StatusBadRequest, malformed},
		{http.Header{}, http.StatusRequestEntityTooLarge, "resource_exhausted"},
		{http.Header{"Grpc-Status": {"0"}}, http.StatusOK, ""},
		{http.Header{"Grpc-Status": {"3"}}, http.StatusOK, malformed},
		{http.Header{"Grpc-Status": {"16"}}, http.StatusOK, "unauthenticated"},
	} {
		if got, _ := refusedByProtocol(c.header, c.status); got != c.want {
			t.Errorf("%v %d: got %q, want %q", c.header, c.status, got, c.want)
		}
	}
}
