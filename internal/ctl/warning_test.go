package ctl

import (
	"fmt"
	"slices"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
)

func TestARefusalIsToldOnce(t *testing.T) {
	const full, other = "mux1: no room in table buckets", "mux2: no room in table backends"
	var o observation
	for i := range 5000 {
		vip := &weirv1.VIP{Name: fmt.Sprintf("v%d", i), Status: &weirv1.VIPStatus{Rejections: []string{full}}}
		if i == 7 {
			vip.Status.Rejections = append(vip.Status.Rejections, other)
		}
		o.vips = append(o.vips, vip)
	}
	o.warnRefused()
	want := []string{"vip v0 and 4999 others: refused by " + full, "vip v7: refused by " + other}
	if !slices.Equal(o.warnings, want) {
		t.Errorf("warnings %q, want %q", o.warnings, want)
	}
}
