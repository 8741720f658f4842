package manager

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
)

func bare(name, address string, labels ...string) *weirv1.VIP {
	vip := &weirv1.VIP{Name: name, Address: address, Endpoints: []*weirv1.Endpoint{{Protocol: "TCP", Port: 80}}, Labels: map[string]string{}}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		vip.Labels[key] = value
	}
	return vip
}

func TestWriters(t *testing.T) {
	url, _ := start(t, Config{})
	client := dial(t, url)
	made, err := client.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: bare("shop", "203.0.113.10")})
	if err != nil || made.Vip.ResourceVersion == 0 || made.Vip.CreateTime == nil {
		t.Fatalf("create: %v, %v", made, err)
	}
	if _, err := client.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: bare("shop", "203.0.113.11")}); connect.CodeOf(err) != connect.CodeAlreadyExists {
		t.Errorf("created twice: %v", err)
	}
	next := bare("", "203.0.113.11")
	next.ResourceVersion = made.Vip.ResourceVersion
	put, err := client.UpdateVIP(t.Context(), &weirv1.UpdateVIPRequest{Name: "shop", Vip: next})
	if err != nil || put.Vip.Address != "203.0.113.11" || put.Vip.ResourceVersion <= made.Vip.ResourceVersion {
		t.Fatalf("update: %v, %v", put, err)
	}
	_, err = client.UpdateVIP(t.Context(), &weirv1.UpdateVIPRequest{Name: "shop", Vip: next})
	want := fmt.Sprintf("VIP shop is of version %d, written at ", put.Vip.ResourceVersion)
	if connect.CodeOf(err) != connect.CodeAborted || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("an old version: %v, want %s", err, want)
	}
	if code, answer := call(t, "PATCH", url+"/v1/vips/shop", `{"labels": {"team": "web"}, "ping": "ignore"}`); code != 200 {
		t.Errorf("patch: %d %v", code, answer)
	}
	stale := fmt.Sprintf("%s/v1/vips/shop?resourceVersion=%d", url, put.Vip.ResourceVersion)
	for _, method := range []string{"PATCH", "DELETE"} {
		if code, answer := call(t, method, stale, `{}`); code != 409 {
			t.Errorf("%s of an old version: %d %v", method, code, answer)
		}
	}
	got, err := client.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "shop"})
	if err != nil || got.Vip.Labels["team"] != "web" || got.Vip.Ping != "ignore" || got.Vip.Address != "203.0.113.11" {
		t.Errorf("after the patch: %v, %v", got, err)
	}
	if _, err := client.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: "shop", ResourceVersion: got.Vip.ResourceVersion}); err != nil {
		t.Error(err)
	}
	if code, answer := call(t, "PUT", url+"/v1/vips/shop", `{"address": "203.0.113.11", "endpoints": [{"protocol": "TCP", "port": 80}]}`); code != 404 {
		t.Errorf("an update creates: %d %v", code, answer)
	}
}

func TestWritersNameTheField(t *testing.T) {
	url, _ := start(t, Config{})
	if code, answer := call(t, "POST", url+"/v1/vips", `{"name": "shop", "address": "203.0.113.10", "endpoints": [{"protocol": "TCP", "port": 80}]}`); code != 200 {
		t.Fatalf("create: %d %v", code, answer)
	}
	for _, c := range []struct{ method, path, body, field string }{
		{"POST", "/v1/vips", `{"name": "x", "address": "203.0.113.10", "endpoints": [{"protocol": "TCP", "port": 80}]}`, "address"},
		{"PUT", "/v1/vips/shop", `{"name": "other", "address": "203.0.113.10", "endpoints": [{"protocol": "TCP", "port": 80}]}`, "name"},
		{"PATCH", "/v1/vips/shop?strict=true", `{"endpoints": [{"protocol": "TCP", "port": 80, "backends": [{"address": "10.3.1.1", "port": 80, "host": "x"}]}]}`, "endpoints[0].backends[0].host"},
		{"PATCH", "/v1/vips/shop", `{"adress": "x"}`, "adress"},
		{"PATCH", "/v1/vips/shop", `{"name": "x"}`, "name"},
		{"POST", "/v1/pools", `{"name": "x", "prefixes": ["203.0.113.1/24"]}`, "prefixes[0]"},
		{"GET", "/v1/vips?labelSelector=a,,b", "", "labelSelector"},
		{"GET", "/v1/vips?pageToken=x", "", "pageToken"},
		{"GET", "/v1/events?kind=cook", "", "kind"},
	} {
		code, answer := call(t, c.method, url+c.path, c.body)
		if text, _ := json.Marshal(answer); code != 400 || !strings.Contains(string(text), fmt.Sprintf(`"field":"%s"`, c.field)) {
			t.Errorf("%s %s %s: %d %s, want field %s", c.method, c.path, c.body, code, text, c.field)
		}
	}
}

func TestPoolsGiveAddresses(t *testing.T) {
	url, stop := start(t, Config{DataDir: t.TempDir()})
	client := dial(t, url)
	applied, err := client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{
		Pools: []*weirv1.AddressPool{{Name: "public", Prefixes: []string{"203.0.113.0/31"}}},
		Vips:  []*weirv1.VIP{{Name: "a", Pool: "public", Endpoints: bare("", "").Endpoints}, {Name: "b", Pool: "public", Endpoints: bare("", "").Endpoints}},
	})
	if err != nil || applied.Vips[0].Address != "203.0.113.0" || applied.Vips[1].Address != "203.0.113.1" || applied.Pools[0].Change != "created" {
		t.Fatalf("apply: %v, %v", applied, err)
	}
	vip := &weirv1.VIP{Name: "c", Pool: "public", Endpoints: bare("", "").Endpoints}
	if _, err = client.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: vip}); err == nil || err.Error() != "pool: public has no free address left: add a prefix to it" {
		t.Errorf("an exhausted pool: %v", err)
	}
	pool, err := client.GetAddressPool(t.Context(), &weirv1.GetAddressPoolRequest{Name: "public"})
	if err != nil || pool.Pool.Status.Ipv4.Total != 2 || pool.Pool.Status.Ipv4.Used != 2 || pool.Pool.Status.Ipv6 != nil {
		t.Errorf("use: %v, %v", pool, err)
	}
	if code, answer := call(t, "DELETE", url+"/v1/pools/public", ""); code != 400 || !strings.Contains(fmt.Sprint(answer["message"]), "is the pool of 2 VIPs: there are a, b") {
		t.Errorf("delete a pool in use: %d %v", code, answer)
	}
	if _, err := client.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if made, err := client.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: vip}); err != nil || made.Vip.Address != "203.0.113.0" {
		t.Errorf("a freed address: %v, %v", made, err)
	}
	stop()
}
