package apiserver

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/limits"
)

// Of every procedure it is known which manager carries it out, by REST as by the other protocols.
func TestEveryProcedureHasAPlace(t *testing.T) {
	places := maps.Clone(handling)
	for _, service := range limits.Services() {
		for i := range service.Methods().Len() {
			procedure := "/" + string(service.FullName()) + "/" + string(service.Methods().Get(i).Name())
			if places[procedure] == 0 {
				t.Errorf("nobody says which manager carries out %s", procedure)
			}
			delete(places, procedure)
		}
	}
	for procedure := range places {
		t.Errorf("there is a place for %s, which is not there", procedure)
	}
	for rest, procedure := range restProcedures() {
		holdREST(t, procedure, rest)
	}
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
