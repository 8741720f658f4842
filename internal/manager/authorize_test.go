package manager

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// Every procedure of every service has its rule, and every rule its procedure.
func TestEveryProcedureHasARule(t *testing.T) {
	left := map[string]bool{}
	for procedure := range rules {
		left[procedure] = true
	}
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
			}
		}
	}
	for procedure := range left {
		t.Errorf("there is a rule for %s, which is not there", procedure)
	}
}
