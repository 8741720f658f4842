package apiserver

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/limits"
	"github.com/weirlb/weir/internal/trust"
)

// Of two requests of the same size one is large, and the other is not, by what they may become. Each is read from its
// beginning by who comes next.
func TestWhatARequestMayBecome(t *testing.T) {
	for what, c := range mayBecome(t) {
		r := httptest.NewRequest(http.MethodPost, "http://m"+c.procedure, strings.NewReader(c.body))
		if c.path != "" {
			r.URL.Path = c.path
		}
		r.Header.Set("Content-Type", c.kind)
		if c.packed {
			r.Header.Set("Content-Encoding", "gzip")
		}
		size := int64(len(c.body))
		if c.untold {
			size = -1
		}
		if got := isLarge(r, cmp.Or(c.caller, limits.User), c.procedure, size); got != c.large {
			t.Errorf("%s: large is %v", what, got)
		}
		if rest, err := io.ReadAll(r.Body); err != nil || string(rest) != c.body {
			t.Errorf("%s: %d of %d bytes are left to be read: %v", what, len(rest), len(c.body), err)
		}
	}
}

// body is that of a request, and whether it is large.
type body struct {
	procedure, kind, body string
	path                  string // of REST
	caller                limits.Kind
	untold, packed, large bool
}

func mayBecome(t *testing.T) map[string]body {
	const (
		apply  = weirv1connect.WeirServiceApplyVIPsProcedure
		create = weirv1connect.WeirServiceCreateVIPProcedure
		report = weirv1connect.SyncServiceReportMuxProcedure
		get    = weirv1connect.WeirServiceGetVIPProcedure
		most   = limits.LargeMessages
	)
	wire := func(m proto.Message) string {
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	empty := func(n int) string { return strings.Repeat("\x0a\x00", n) }
	name := func(n int) string {
		return wire(&weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{{Name: strings.Repeat("x", n)}}})
	}
	endpoints := wire(&weirv1.CreateVIPRequest{Vip: &weirv1.VIP{Endpoints: make([]*weirv1.Endpoint, 2*most)}})
	lists := wire(&weirv1.ApplyVIPsRequest{PrefixLists: []*weirv1.PrefixList{{Prefixes: make([]string, 8*most)}}})
	grpc := func(message string) string { return "\x00\x00\x00\x00\x00" + message }
	return map[string]body{
		"messages, as many as may be":  {procedure: apply, kind: "application/proto", body: empty(most)},
		"one message too many":         {procedure: apply, kind: "application/proto", body: empty(most + 1), large: true},
		"the same by gRPC":             {procedure: apply, kind: "application/grpc", body: grpc(empty(most + 1)), large: true},
		"as many as may be by gRPC":    {procedure: apply, kind: "application/grpc", body: grpc(empty(most))},
		"the same in JSON":             {procedure: apply, kind: "application/json", body: `{"vips": [` + strings.Repeat("{},", most) + `{}]}`, large: true},
		"the same by REST":             {procedure: apply, path: "/v1/vips:apply", body: `{"vips": [` + strings.Repeat("{},", most) + `{}]}`, large: true},
		"few messages of many bytes":   {procedure: apply, kind: "application/proto", body: name(limits.LargeBytes - 100)},
		"too many bytes":               {procedure: apply, kind: "application/proto", body: name(limits.LargeBytes), large: true},
		"too many bytes, not told":     {procedure: apply, kind: "application/proto", body: name(limits.LargeBytes), untold: true, large: true},
		"few messages, size not told":  {procedure: apply, kind: "application/proto", body: name(100), untold: true},
		"many messages, not told":      {procedure: apply, kind: "application/proto", body: empty(most + 1), untold: true, large: true},
		"packed":                       {procedure: apply, kind: "application/proto", body: gzipped(name(100)), packed: true},
		"packed, many messages":        {procedure: apply, kind: "application/proto", body: gzipped(empty(most + 1)), packed: true, large: true},
		"packed, many bytes":           {procedure: apply, kind: "application/proto", body: gzipped(name(limits.LargeBytes)), packed: true, large: true},
		"not packed as it says":        {procedure: apply, kind: "application/proto", body: name(100), packed: true, large: true},
		"a type in capitals":           {procedure: apply, kind: "Application/JSON; charset=utf-8", body: `{"vips": [` + strings.Repeat("{},", most) + `{}]}`, large: true},
		"gRPC in capitals":             {procedure: apply, kind: "Application/gRPC", body: grpc(empty(most + 1)), large: true},
		"malformed":                    {procedure: apply, kind: "application/proto", body: strings.Repeat("{", 3*most), large: true},
		"many endpoints of one VIP":    {procedure: create, kind: "application/proto", body: endpoints, large: true},
		"many texts of lists":          {procedure: apply, kind: "application/proto", body: lists, large: true},
		"what can't be much":           {procedure: get, kind: "application/proto", body: empty(2 * most)},
		"a node's report":              {procedure: report, caller: limits.Mux, kind: "application/proto", body: empty(2 * most)},
		"the same by a user":           {procedure: report, kind: "application/proto", body: strings.Repeat("\x32\x00", 2*most), large: true},
		"a node's report of megabytes": {procedure: report, caller: limits.Mux, kind: "application/proto", body: name(limits.LargeBytes), large: true},
	}
}

func gzipped(text string) string {
	var b strings.Builder
	w := gzip.NewWriter(&b)
	io.WriteString(w, text)
	w.Close()
	return b.String()
}

// Of gRPC's unary calls nothing is read beyond the first message, but a byte that has package connect refuse the rest.
func TestOneMessageOfACallIsRead(t *testing.T) {
	const second = 1 << 20
	body := "\x00\x00\x00\x00\x02ab" + strings.Repeat("x", second)
	for _, kind := range []string{"application/grpc", "Application/grpc+proto"} {
		r := httptest.NewRequest(http.MethodPost, "http://m"+weirv1connect.WeirServiceApplyVIPsProcedure, strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		size, err := oversized(httptest.NewRecorder(), r, trust.Identity{Kind: trust.User, Name: "ada"}, weirv1connect.WeirServiceApplyVIPsProcedure)
		if rest, _ := io.ReadAll(r.Body); err != nil || size != 2 || len(rest) != limits.MessageHead+2+1 {
			t.Errorf("%s: size %d, %d bytes are read, %v", kind, size, len(rest), err)
		}
	}
}

// What is not large takes little memory until its VIPs are read, whatever they are made of.
func TestARequestThatIsNotLargeTakesLittle(t *testing.T) {
	const most = 12 << 20 // bytes
	for what, made := range map[string]func(n int) *weirv1.ApplyVIPsRequest{
		"VIPs": func(n int) *weirv1.ApplyVIPsRequest { return &weirv1.ApplyVIPsRequest{Vips: make([]*weirv1.VIP, n)} },
		"endpoints": func(n int) *weirv1.ApplyVIPsRequest {
			return &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{{Endpoints: make([]*weirv1.Endpoint, n)}}}
		},
		"VIPs of endpoints": func(n int) *weirv1.ApplyVIPsRequest {
			r := &weirv1.ApplyVIPsRequest{}
			for range n / 16 {
				r.Vips = append(r.Vips, &weirv1.VIP{Endpoints: make([]*weirv1.Endpoint, 15)})
			}
			return r
		},
		"backends": func(n int) *weirv1.ApplyVIPsRequest {
			return &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{{Endpoints: []*weirv1.Endpoint{{Backends: make([]*weirv1.Backend, n)}}}}}
		},
		"sources": func(n int) *weirv1.ApplyVIPsRequest {
			return &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{{Endpoints: []*weirv1.Endpoint{{Allow: make([]string, 4*n)}}}}}
		},
		"workloads": func(n int) *weirv1.ApplyVIPsRequest {
			return &weirv1.ApplyVIPsRequest{Networks: []*weirv1.VirtualNetwork{{Workloads: make([]*weirv1.NetworkWorkload, n)}}}
		},
	} {
		request := func(n int) (data []byte, large bool) {
			data, err := proto.Marshal(made(n))
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest(http.MethodPost, weirv1connect.WeirServiceApplyVIPsProcedure, bytes.NewReader(data))
			return data, isLarge(r, limits.User, weirv1connect.WeirServiceApplyVIPsProcedure, r.ContentLength)
		}
		if data, large := request(1<<18 - 2); !large {
			t.Errorf("%s of %d bytes on the wire are not large", what, len(data))
		}
		data, large := request(limits.LargeMessages - 2)
		memory := allocates(func() {
			read := &weirv1.ApplyVIPsRequest{}
			if err := proto.Unmarshal(data, read); err != nil {
				t.Fatal(err)
			}
			compile.VIPs(read.GetVips())
			compile.Networks(read.GetNetworks())
		})
		if large || memory > most && !raced {
			t.Errorf("%s of %d bytes on the wire take %d bytes, large: %v", what, len(data), memory, large)
		}
		t.Logf("%-18s %7d bytes take %9d", what, len(data), memory)
	}
}

// allocates says how many bytes do allocates.
func allocates(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
