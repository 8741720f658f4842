package manager

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
)

// call sends a request as curl would, and returns the answer's status and JSON.
func call(t *testing.T, method, url, body string) (int, map[string]any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer map[string]any
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatalf("%s %s answered %d %s: %v", method, url, response.StatusCode, text, err)
	}
	return response.StatusCode, answer
}

const shopJSON = `{"vips": [{"name": "shop", "address": "203.0.113.10", "endpoints": [{"protocol": "TCP", "port": 80}]}]}`

func TestREST(t *testing.T) {
	url, _ := start(t, Config{})
	if code, answer := call(t, "POST", url+"/v1/vips:apply", shopJSON); code != 200 || answer["generation"] == "0" {
		t.Fatalf("apply: %d %v", code, answer)
	}
	for path, want := range map[string]string{
		"/v1/vips":               `"name":"shop"`,
		"/v1/vips/shop":          `"address":"203.0.113.10"`,
		"/v1/vips?tenant=nobody": `"vips":[]`,
		"/v1/nodes":              `"nodes":[]`,
		"/v1/status":             `"store":"embedded: 1 member"`,
		"/openapi.json":          `"openapi":"3.1.0"`,
		"/v1/explain?protocol=TCP&sourceAddress=198.51.100.1&sourcePort=1024&destinationAddress=203.0.113.10&destinationPort=80": `the endpoint has no backends`,
	} {
		code, answer := call(t, "GET", url+path, "")
		if text, _ := json.Marshal(answer); code != 200 || !strings.Contains(string(text), want) {
			t.Errorf("GET %s: %d %s, want %s", path, code, text, want)
		}
	}
	for path, want := range map[string]int{"/v1/vips/none": 404, "/v1/nodes/none": 404, "/v1/nodes?role=cook": 400, "/v1/nothing": 404} {
		if code, answer := call(t, "GET", url+path, ""); code != want {
			t.Errorf("GET %s: %d %v, want %d", path, code, answer, want)
		}
	}
	if _, answer := call(t, "GET", url+"/v1/vips/shob", ""); answer["message"] != `there is no VIP "shob", did you mean shop?` {
		t.Errorf("a misspelled name: %v", answer)
	}
	if code, answer := call(t, "DELETE", url+"/v1/vips/shop", ""); code != 200 {
		t.Errorf("delete: %d %v", code, answer)
	}
}

func TestRESTErrorsNameTheField(t *testing.T) {
	url, _ := start(t, Config{})
	bad := strings.Replace(shopJSON, "203.0.113.10", "203.0.113", 1)
	code, answer := call(t, "POST", url+"/v1/vips:apply", bad)
	text, _ := json.Marshal(answer["details"])
	if code != 400 || !strings.Contains(string(text), `"field":"vips[0].address"`) {
		t.Errorf("a bad address: %d %v", code, answer)
	}
	misspelled := strings.Replace(shopJSON, "address", "adress", 1)
	if code, answer := call(t, "POST", url+"/v1/vips:apply", misspelled); code != 400 || !strings.Contains(answer["message"].(string), "adress") {
		t.Errorf("an unknown field: %d %v", code, answer)
	}
	if code, answer := call(t, "GET", url+"/v1/vips", ""); code != 200 || len(answer["vips"].([]any)) != 0 {
		t.Errorf("something was applied: %v", answer)
	}
}

// What is no call, or no request of one, is the client's fault, and does nothing.
func TestRESTRefuses(t *testing.T) {
	t.Parallel()
	url, _ := start(t, Config{})
	for _, c := range []struct {
		method, path, body string
		code               int
	}{
		{"PUT", "/v1/vips", "{}", 405},
		{"TRACE", "/v1/status", "", 405},
		{"GET", "/v1/vips:apply", "", 405},
		{"POST", "/v1/nodes", "", 405},
		{"GET", "/v1/vips?tenent=shop", "", 400},
		{"DELETE", "/v1/vips/shop?force=true", "", 400},
		{"GET", "/v1/nothing", "", 404},
		{"POST", "/v1/vips:apply", "", 400},
		{"POST", "/v1/vips:apply", "{}", 400},
		{"POST", "/v1/vips:apply", `{"vips": [null]}`, 400},
		{"POST", "/v1/vips:apply", strings.Repeat("[", 20000), 400},
		{"POST", "/v1/vips:apply", "\xff\x00", 400},
		{"POST", "/v1/vips:apply", `{"vips": [` + strings.Repeat(" ", maxApply) + `]}`, 413},
	} {
		if code, answer := call(t, c.method, url+c.path, c.body); code != c.code || answer["message"] == "" {
			t.Errorf("%s %s %.20q: %d %v, want %d", c.method, c.path, c.body, code, answer, c.code)
		}
	}
}

// A POST of a form, as curl -d sends it, is no GET.
func TestRESTFormIsNoGet(t *testing.T) {
	url, _ := start(t, Config{})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/nodes", strings.NewReader(shopJSON))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if allow := response.Header.Get("Allow"); response.StatusCode != http.StatusMethodNotAllowed || allow != "GET" {
		t.Errorf("got %s, Allow: %s", response.Status, allow)
	}
}

func TestConnectRefusesUnknownFields(t *testing.T) {
	url, _ := start(t, Config{})
	misspelled := strings.Replace(shopJSON, "address", "adress", 1)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		url+"/weir.v1.WeirService/ApplyVIPs", strings.NewReader(misspelled))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), `\"adress\"`) {
		t.Errorf("got %s %s", response.Status, text)
	}
}

// A field that only a newer client knows is refused, wherever it stands.
func TestApplyRefusesFieldsOfTheFuture(t *testing.T) {
	url, _ := start(t, Config{})
	vip := shop()
	vip.Endpoints[0].Backends[1].ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1))
	_, err := dial(t, url).ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}})
	if err == nil || !strings.HasPrefix(err.Error(), "vips[0].endpoints[0].backends[1]: has a field") {
		t.Errorf("got %v", err)
	}
}

func TestHealthz(t *testing.T) {
	url, _ := start(t, Config{})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("got %s", response.Status)
	}
}

func TestGRPC(t *testing.T) {
	url, _ := start(t, Config{})
	conn, err := grpc.NewClient(strings.TrimPrefix(url, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := weirv1.NewWeirServiceClient(conn)
	if _, err := client.GetStatus(t.Context(), &weirv1.GetStatusRequest{}); err != nil {
		t.Error(err)
	}
	_, err = client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{shop()}, Strict: true})
	refused := status.Convert(err)
	if refused.Code() != codes.InvalidArgument || len(refused.Details()) != 1 {
		t.Fatalf("unknown hosts: %v with %v", err, refused.Details())
	}
	bad := refused.Details()[0].(*errdetails.BadRequest)
	if field := bad.FieldViolations[0].Field; field != "vips[0].endpoints[0].backends[0].host" {
		t.Errorf("the error names %s", field)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := weirv1.NewSyncServiceClient(conn).SyncMux(ctx, &weirv1.SyncMuxRequest{Name: "mux1", Addresses: []string{"10.1.1.2"}})
	if err != nil {
		t.Fatal(err)
	}
	first, err := stream.Recv()
	if err != nil || !first.Snapshot || len(first.HashKey) != 40 {
		t.Errorf("the first message is %v, %v, want a snapshot", first, err)
	}
}

func TestConnectOverHTTP1(t *testing.T) {
	url, _ := start(t, Config{})
	transport := &http.Transport{DisableKeepAlives: true}
	client := weirv1connect.NewWeirServiceClient(&http.Client{Transport: transport}, url, connect.WithProtoJSON())
	if _, err := client.GetStatus(t.Context(), &weirv1.GetStatusRequest{}); err != nil {
		t.Error(err)
	}
}
