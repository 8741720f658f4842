package manager

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/trust"
)

// Every procedure of every service has its rule and its place, and every rule and place its procedure.
func TestEveryProcedureHasARule(t *testing.T) {
	left := map[string]bool{}
	for procedure := range rules {
		left[procedure] = true
	}
	places := maps.Clone(handling)
	for _, file := range []protoreflect.FileDescriptor{
		weirv1.File_v1_weir_proto, weirv1.File_v1_sync_proto, weirv1.File_v1_cluster_proto, weirv1.File_v1_trust_proto,
	} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				procedure := "/" + string(service.FullName()) + "/" + string(service.Methods().Get(j).Name())
				if !left[procedure] {
					t.Errorf("%s has no rule: nobody may call it", procedure)
				}
				delete(left, procedure)
				if places[procedure] == 0 {
					t.Errorf("nobody says which manager carries out %s", procedure)
				}
				delete(places, procedure)
				if rest := httpRule(service.Methods().Get(j)); rest != "" {
					holdREST(t, procedure, rest)
				}
			}
		}
	}
	for procedure := range places {
		t.Errorf("there is a place for %s, which is not there", procedure)
	}
	for procedure := range left {
		t.Errorf("there is a rule for %s, which is not there", procedure)
	}
}

// Of a caller who is not known nothing is permitted but to join, whatever let the request come so far.
func TestNobodyIsPermitted(t *testing.T) {
	m := &Manager{}
	for procedure, rule := range rules {
		golden, there := goldenRules[strings.TrimPrefix(procedure, "/weir.v1.")]
		if !there {
			t.Errorf("%s has no row in the golden table", procedure)
			continue
		}
		wanted := connect.CodeUnauthenticated
		if rule.scope == asNobody {
			wanted = 0
		}
		for what, nobody := range map[string]trust.Identity{"nobody": {}, "one whose proof is refused": {Reason: "was revoked", From: "192.0.2.7:99"}} {
			err := m.permit(trust.WithIdentity(t.Context(), nobody), procedure, golden.request)
			if err == nil && wanted != 0 || err != nil && connect.CodeOf(err) != wanted {
				t.Errorf("%s calls %s: %v", what, short(procedure), err)
			}
		}
	}
	if err := m.permit(t.Context(), "/weir.v1.WeirService/None", nil); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("a procedure without a rule: %v", err)
	}
}

// What a call changes is named in the audit log with what it is.
func TestSubjectsOfTheAuditLog(t *testing.T) {
	for procedure, rule := range rules {
		if !rule.changes || procedure == weirv1connect.ClusterServiceBackupProcedure {
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
