package manager

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/weirlb/weir/internal/limits"
)

// a way leads from a request to a field in it.
type way []protoreflect.FieldDescriptor

// ways are those to each text, list and map in a request, one to each.
func ways(request protoreflect.MessageDescriptor) (all []way) {
	seen := map[protoreflect.FullName]bool{}
	var walk func(m protoreflect.MessageDescriptor, to way)
	walk = func(m protoreflect.MessageDescriptor, to way) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			here := slices.Concat(to, way{f})
			text := f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind
			if f.IsList() || f.IsMap() || text {
				all = append(all, here)
			}
			if f.Message() != nil && !f.IsMap() {
				walk(f.Message(), here)
			}
		}
	}
	walk(request, nil)
	return all
}

// beyond is a request in which the field at the end of a way is one beyond its bound.
func beyond(request protoreflect.MessageDescriptor, to way, b limits.Field) proto.Message {
	root := dynamicpb.NewMessage(request)
	var m protoreflect.Message = root
	for _, f := range to[:len(to)-1] {
		if f.IsList() {
			m = m.Mutable(f).List().AppendMutable().Message()
		} else {
			m = m.Mutable(f).Message()
		}
	}
	f := to[len(to)-1]
	switch {
	case f.IsMap():
		for i := range b.List + 1 {
			m.Mutable(f).Map().Set(protoreflect.ValueOfString(fmt.Sprint(i)).MapKey(), m.Mutable(f).Map().NewValue())
		}
	case f.IsList():
		for range b.List + 1 {
			m.Mutable(f).List().Append(m.Mutable(f).List().NewElement())
		}
	case f.Kind() == protoreflect.BytesKind:
		m.Set(f, protoreflect.ValueOfBytes(bytes.Repeat([]byte{'x'}, b.Text+1)))
	default:
		m.Set(f, protoreflect.ValueOfString(strings.Repeat("x", b.Text+1)))
	}
	return root
}

// A manager refuses each text, list and map that is one beyond its bound, in a request of each procedure, by the name of
// the field and its bound. Here nobody is kept from calling by who they are.
func TestAManagerHoldsTheTable(t *testing.T) {
	t.Parallel()
	url, stop := start(t, Config{})
	defer stop()
	for _, service := range limits.Services() {
		for i := range service.Methods().Len() {
			method := service.Methods().Get(i)
			procedure := "/" + string(service.FullName()) + "/" + string(method.Name())
			for _, to := range ways(method.Input()) {
				f := to[len(to)-1]
				b := limits.OfField(f)
				message, err := proto.Marshal(beyond(method.Input(), to, b))
				if err != nil {
					t.Fatal(err)
				}
				kind := "application/proto"
				if method.IsStreamingServer() || method.IsStreamingClient() {
					kind, message = "application/connect+proto", enveloped(0, message)
				}
				_, text := send(t, nil, http.MethodPost, url+procedure, kind, bytes.NewReader(message))
				most := b.Text
				if f.IsList() || f.IsMap() {
					most = b.List
				}
				if !strings.Contains(text, f.JSONName()) || !strings.Contains(text, fmt.Sprintf("at most %d ", most)) {
					t.Errorf("%s: %s of %d and one more: got %.200s", procedure, f.FullName(), most, text)
				}
			}
		}
	}
	status, text := send(t, nil, http.MethodPost, url+"/v1/vips:apply", "application/json", strings.NewReader(`{"vips": [{"name": "`+strings.Repeat("x", 257)+`"}]}`))
	if status != http.StatusBadRequest || !strings.Contains(text, "vips[0].name: must have at most 256 bytes, has 257") {
		t.Errorf("by REST: got %d %s", status, text)
	}
	status, text = send(t, nil, http.MethodPost, url+"/v1/tokens", "application/json", strings.NewReader(`{"role": "`+strings.Repeat("x", limits.Of("").Bytes)+`"}`))
	if status != http.StatusRequestEntityTooLarge {
		t.Errorf("a token's request of 64 KiB by REST: got %d %s", status, text)
	}
}
