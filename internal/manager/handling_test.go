package manager

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/rpc/bound"
)

// Of every procedure it is known which manager carries it out, by REST as by the other protocols.
func TestEveryProcedureHasAPlace(t *testing.T) {
	places := maps.Clone(handling)
	for _, service := range bound.Services() {
		for i := range service.Methods().Len() {
			procedure := "/" + string(service.FullName()) + "/" + string(service.Methods().Get(i).Name())
			if places[procedure] == 0 {
				t.Errorf("nobody says which manager carries out %s", procedure)
			}
			delete(places, procedure)
			if rest := httpRule(service.Methods().Get(i)); rest != "" {
				holdREST(t, procedure, rest)
			}
		}
	}
	for procedure := range places {
		t.Errorf("there is a place for %s, which is not there", procedure)
	}
}

// What a call changes is named in the audit log with what it is.
func TestSubjectsOfTheAuditLog(t *testing.T) {
	for procedure := range authz.Procedures() {
		if !authz.Changes(procedure) || procedure == weirv1connect.ClusterServiceBackupProcedure {
			continue
		}
		service, method, _ := strings.Cut(strings.TrimPrefix(procedure, "/"), "/")
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + method))
		if err != nil {
			t.Fatal(err)
		}
		request, err := protoregistry.GlobalTypes.FindMessageByName(found.(protoreflect.MethodDescriptor).Input().FullName())
		if err != nil {
			t.Fatal(err)
		}
		message := request.New()
		fill(message, 2)
		if got := subject(procedure, message.Interface()); !strings.Contains(got, "/x") {
			t.Errorf("%s changes %q", procedure, got)
		}
	}
	for procedure, want := range map[string]string{
		weirv1connect.WeirServicePatchVIPProcedure: "vip/x", weirv1connect.WeirServiceUpdateAddressPoolProcedure: "pool/x",
		weirv1connect.TrustServiceRotateUserProcedure: "user/x", weirv1connect.ClusterServiceDeleteManagerProcedure: "manager/x",
	} {
		if got := subject(procedure, &weirv1.PatchVIPRequest{Name: "x"}); got != want {
			t.Errorf("%s changes %q, want %q", procedure, got, want)
		}
	}
}

// fill sets all texts of a message to x, also in those that it holds.
func fill(m protoreflect.Message, depth int) {
	for i := range m.Descriptor().Fields().Len() {
		switch f := m.Descriptor().Fields().Get(i); {
		case f.Kind() == protoreflect.StringKind && f.Cardinality() != protoreflect.Repeated:
			m.Set(f, protoreflect.ValueOfString("x"))
		case f.Kind() != protoreflect.MessageKind || f.IsMap() || depth == 0:
		case f.IsList():
			fill(m.Mutable(f).List().AppendMutable().Message(), depth-1)
		default:
			fill(m.Mutable(f).Message(), depth-1)
		}
	}
}

// httpRule is how REST calls a method: "POST /v1/vips", or empty.
func httpRule(method protoreflect.MethodDescriptor) string {
	r, ok := proto.GetExtension(method.Options(), annotations.E_Http).(*annotations.HttpRule)
	if !ok {
		return ""
	}
	for name, path := range map[string]string{
		http.MethodGet: r.GetGet(), http.MethodPost: r.GetPost(), http.MethodPut: r.GetPut(),
		http.MethodPatch: r.GetPatch(), http.MethodDelete: r.GetDelete(),
	} {
		if path != "" {
			return name + " " + path
		}
	}
	return ""
}

// holdREST holds that a call by REST goes where it goes by the other protocols.
func holdREST(t *testing.T, procedure, rest string) {
	t.Helper()
	method, path, _ := strings.Cut(rest, " ")
	byREST := writes(&http.Request{Method: method, URL: &url.URL{Path: path}})
	byRPC := writes(&http.Request{Method: http.MethodPost, URL: &url.URL{Path: procedure}})
	if byREST != byRPC {
		t.Errorf("%s goes to the leader: %t, and by %s: %t", procedure, byRPC, rest, byREST)
	}
}
