package auditlog

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/trust"
)

// The audit log is asked by who, by what it was about, by whether it was refused, and by when; however far back that is.
func TestAuditIsAskedFor(t *testing.T) {
	client, err := etcd.Open(t.Context(), etcd.Config{Name: "m1", DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	log := New(client)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var entries []trust.AuditEntry
	for i := range 2*pageSize + 10 {
		e := trust.AuditEntry{Time: begin.Add(time.Duration(i) * time.Second), Identity: "user/bob", Subject: fmt.Sprintf("vip/v%d tenant/acme", i), Manager: "m1"}
		if i == 3 || i == pageSize {
			e.Identity = "user/alice"
		}
		e.Refused = i%10 == 0
		entries = append(entries, e)
	}
	if err := log.Append(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	last := len(entries) - 1
	for name, c := range map[string]struct {
		q    Query
		want []int // numbers of the entries
	}{
		"the newest":        {Query{Limit: 3}, []int{last, last - 1, last - 2}},
		"by who":            {Query{Limit: 9, Identity: "user/alice"}, []int{pageSize, 3}},
		"the newest by who": {Query{Limit: 1, Identity: "user/alice"}, []int{pageSize}},
		"by what":           {Query{Limit: 9, Subject: "vip/v7"}, []int{7}},
		"by a part of it":   {Query{Limit: 9, Subject: "vip/v"}, nil},
		"refused by who":    {Query{Limit: 9, Refused: true, Identity: "user/alice"}, []int{pageSize}},
		"since":             {Query{Limit: 9, Since: begin.Add(time.Duration(last-1) * time.Second)}, []int{last, last - 1}},
		"before":            {Query{Limit: 9, Since: begin.Add(time.Hour)}, nil},
	} {
		found, err := log.List(t.Context(), c.q)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, e := range found {
			got = append(got, int(e.Time.Sub(begin)/time.Second))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
