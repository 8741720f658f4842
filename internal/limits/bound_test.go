package limits

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// eachField calls do for each text, list and map that is reachable from a request, once.
func eachField(do func(protoreflect.FieldDescriptor)) {
	seen := map[protoreflect.FullName]bool{}
	var walk func(protoreflect.MessageDescriptor)
	walk = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if f.IsList() || f.IsMap() || isText(f) {
				do(f)
			}
			switch {
			case f.IsMap():
				if value := f.MapValue().Message(); value != nil {
					walk(value)
				}
			case f.Message() != nil:
				walk(f.Message())
			}
		}
	}
	for _, service := range Services() {
		for i := range service.Methods().Len() {
			walk(service.Methods().Get(i).Input())
		}
	}
}

// Each procedure, and each text, list and map that is reachable from a request, has a bound; and nothing else has one.
func TestTheTableIsComplete(t *testing.T) {
	reachable, procedures := map[protoreflect.FullName]bool{}, map[string]bool{}
	eachField(func(f protoreflect.FieldDescriptor) {
		key := protoreflect.FullName(strings.TrimPrefix(string(f.FullName()), home))
		reachable[key] = true
		b, there := Fields[key]
		text := isText(f) || f.IsMap() && isText(f.MapValue())
		switch {
		case !there:
			t.Errorf("%s has no bound: give it one in Fields", key)
		case text != (b.Text > 0) && !f.IsMap():
			t.Errorf("%s: %+v must bound the bytes of a text, and of nothing else", key, b)
		case (f.IsList() || f.IsMap()) != (b.List > 0):
			t.Errorf("%s: %+v must bound the elements of a list or map, and of nothing else", key, b)
		}
	})
	for key := range Fields {
		if !reachable[key] {
			t.Errorf("%s has a bound and is in no request", key)
		}
	}
	for _, service := range Services() {
		for i := range service.Methods().Len() {
			procedure := "/" + string(service.FullName()) + "/" + string(service.Methods().Get(i).Name())
			procedures[procedure] = true
			if r, there := Requests[procedure]; !there || r.Bytes == 0 || r.Messages == 0 {
				t.Errorf("%s has no bound of its bytes and messages: give it one in Requests", procedure)
			}
		}
	}
	for procedure := range Requests {
		if !procedures[procedure] {
			t.Errorf("%s has a bound and is no procedure", procedure)
		}
	}
}

// beyond is a message in which a field is one beyond its bound, and the same cut to it.
func beyond(f protoreflect.FieldDescriptor) proto.Message {
	m := dynamicpb.NewMessage(f.ContainingMessage())
	b := OfField(f)
	fill(m, f, b.Text+1, b.List+1)
	return m
}

func fill(m protoreflect.Message, f protoreflect.FieldDescriptor, text, list int) {
	value := func(f protoreflect.FieldDescriptor, n int) protoreflect.Value {
		if f.Kind() == protoreflect.BytesKind {
			return protoreflect.ValueOfBytes(bytes.Repeat([]byte{'x'}, n))
		}
		return protoreflect.ValueOfString(strings.Repeat("x", n))
	}
	switch {
	case f.IsList():
		all := m.Mutable(f).List()
		for range list {
			if isText(f) {
				all.Append(value(f, 1))
			} else {
				all.Append(all.NewElement())
			}
		}
	case f.IsMap():
		all := m.Mutable(f).Map()
		for i := range list {
			all.Set(protoreflect.ValueOfString(fmt.Sprint(i)).MapKey(), all.NewValue())
		}
	default:
		m.Set(f, value(f, text))
	}
}

// What is one beyond its bound is refused by the name of its field and the bound, or cut to it.
func TestEachFieldIsHeldToItsBound(t *testing.T) {
	eachField(func(f protoreflect.FieldDescriptor) {
		m, b := beyond(f), OfField(f)
		bound := b.Text
		if f.IsList() || f.IsMap() {
			bound = b.List
		}
		errs := model.FieldErrors(Check(m))
		if len(errs) != 1 || errs[0].Field != f.JSONName() || !strings.Contains(errs[0].Reason, fmt.Sprintf("at most %d ", bound)) {
			t.Errorf("%s beyond its bound of %d: %v", f.FullName(), bound, errs)
		}
		if Cut(m); Check(m) != nil {
			t.Errorf("%s was not cut to its bound: %v", f.FullName(), Check(m))
		}
	})
}

func TestErrorsHavePaths(t *testing.T) {
	long := strings.Repeat("é", 600)
	report := &weirv1.ReportHostRequest{
		Rejection: &weirv1.Rejection{Reason: long},
		Health:    []*weirv1.BackendHealth{{}, {Endpoint: &weirv1.EndpointKey{Vip: long}}},
	}
	err := Check(report)
	for _, want := range []string{"rejection.reason: must have at most 1024 bytes, has 1200", "health[1].endpoint.vip: must have at most 64 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	Cut(report)
	if got := report.GetRejection().GetReason(); len(got) > 1024 || !strings.HasSuffix(got, "é...") {
		t.Errorf("cut to %d bytes: %.20q", len(got), got[len(got)-10:])
	}
	labels := &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{{Labels: map[string]string{long: "x"}}}}
	if err := Check(labels); err == nil || !strings.Contains(err.Error(), "must have a key of at most 256 bytes") {
		t.Errorf("a long key: %v", err)
	}
}

// Messages are counted before they are parsed, on the wire and in JSON.
func TestMessagesAreCounted(t *testing.T) {
	descriptor := (&weirv1.ApplyVIPsRequest{}).ProtoReflect().Descriptor()
	empty := func(n int) []byte { return bytes.Repeat([]byte{0x0a, 0}, n) } // VIPs
	names := func(n int) []byte {
		request := &weirv1.ApplyVIPsRequest{PrefixLists: []*weirv1.PrefixList{{Prefixes: make([]string, n)}}}
		data, err := proto.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for what, c := range map[string]struct {
		data []byte
		json string
		fits bool
	}{
		"as many as may be":    {empty(100), `{"vips": [` + strings.Repeat(`{},`, 99) + `]}`, true},
		"one message too many": {empty(101), `{"vips": [` + strings.Repeat(`{},`, 101) + `]}`, false},
		"one text too many":    {names(valuesEach*100 + 1), `{"a": [` + strings.Repeat(`"",`, valuesEach*100) + `]}`, false},
		"text of many braces":  {names(1), `{"a": "` + strings.Repeat(`{,\"`, 5000) + `"}`, true},
		"no protobuf":          {[]byte{0xff}, `{`, true},
	} {
		if err := CountWire(c.data, descriptor, 100); (err == nil) != c.fits {
			t.Errorf("%s, on the wire: %v", what, err)
		}
		if _, err := io.Copy(io.Discard, NewJSON(strings.NewReader(c.json), 100)); (err == nil) != c.fits {
			t.Errorf("%s, in JSON: %v", what, err)
		}
	}
}

// A look at a large request costs little beside its parse.
func BenchmarkCheck(b *testing.B) {
	list := &weirv1.PrefixList{Name: "list"}
	for i := range 100000 {
		list.Prefixes = append(list.Prefixes, fmt.Sprintf("10.%d.%d.0/24", i>>8, i&255))
	}
	request := &weirv1.ApplyVIPsRequest{PrefixLists: []*weirv1.PrefixList{list}}
	data, err := proto.Marshal(request)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			if err := Check(request); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("count", func(b *testing.B) {
		for b.Loop() {
			if err := CountWire(data, request.ProtoReflect().Descriptor(), many); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parse", func(b *testing.B) {
		for b.Loop() {
			if err := proto.Unmarshal(data, &weirv1.ApplyVIPsRequest{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
