package wire

import (
	"fmt"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model/backlog"
)

// BacklogsToProto writes endpoints whose SYNs are to be answered.
func BacklogsToProto(list []backlog.Endpoint) []*weirv1.EndpointBacklog {
	var all []*weirv1.EndpointBacklog
	for _, b := range list {
		all = append(all, &weirv1.EndpointBacklog{Endpoint: EndpointKeyToProto(b.Key), Evidence: b.Evidence})
	}
	return all
}

func (f *fields) backlogs(path string, list []*weirv1.EndpointBacklog) []backlog.Endpoint {
	var all []backlog.Endpoint
	for i, p := range list {
		all = append(all, backlog.Endpoint{Key: f.endpointKey(fmt.Sprintf("%s[%d].", path, i), p.GetEndpoint()), Evidence: p.GetEvidence()})
	}
	return all
}
