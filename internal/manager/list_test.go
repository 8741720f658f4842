package manager

import (
	"fmt"
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
)

func TestPagesAreStable(t *testing.T) {
	url, _ := start(t, Config{})
	client := dial(t, url)
	var vips []*weirv1.VIP
	for i := range 10 {
		vips = append(vips, bare(fmt.Sprintf("vip%d", i), fmt.Sprintf("203.0.113.%d", i+1), fmt.Sprintf("parity=%d", i%2)))
	}
	if _, err := client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: vips}); err != nil {
		t.Fatal(err)
	}
	list := func(r *weirv1.ListVIPsRequest, between ...func()) string {
		t.Helper()
		var names []string
		for {
			response, err := client.ListVIPs(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			for _, vip := range response.Vips {
				names = append(names, strings.TrimPrefix(vip.Name, "vip"))
			}
			names = append(names, "|")
			if r.PageToken = response.NextPageToken; r.PageToken == "" {
				return strings.Join(names, "")
			}
			for _, do := range between {
				do()
			}
		}
	}
	for r, want := range map[*weirv1.ListVIPsRequest]string{
		{}:                                       "0123456789|",
		{PageSize: 5}:                            "01234|56789|",
		{PageSize: 4, LabelSelector: "parity=1"}: "1357|9|",
		{NamePrefix: "vip3"}:                     "3|",
		{NamePrefix: "vip", PageSize: 9, LabelSelector: "parity in (0)"}: "02468|",
		{Tenant: "other"}: "|",
	} {
		if got := list(r); got != want {
			t.Errorf("%v: got %s, want %s", r, got, want)
		}
	}
	// What was there all the time is listed once, whatever comes and goes on both sides of the page.
	step := 0
	got := list(&weirv1.ListVIPsRequest{PageSize: 3}, func() {
		if step++; step == 1 {
			client.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: "vip2"})
			client.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: "vip7"})
			client.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: bare("vip00", "203.0.113.100")})
			client.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: bare("vip55", "203.0.113.101")})
		}
	})
	if want := "012|345|5568|9|"; got != want {
		t.Errorf("while things change: got %s, want %s", got, want)
	}
}
