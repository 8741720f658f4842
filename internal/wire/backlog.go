package wire

import (
	"fmt"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// BacklogsToProto writes endpoints whose SYNs are to be answered.
func BacklogsToProto(list []model.EndpointBacklog) []*weirv1.EndpointBacklog {
	var all []*weirv1.EndpointBacklog
	for _, b := range list {
		all = append(all, &weirv1.EndpointBacklog{Endpoint: EndpointKeyToProto(b.Key), Evidence: b.Evidence})
	}
	return all
}

func (f *fields) backlogs(path string, list []*weirv1.EndpointBacklog) []model.EndpointBacklog {
	var all []model.EndpointBacklog
	for i, p := range list {
		all = append(all, model.EndpointBacklog{Key: f.endpointKey(fmt.Sprintf("%s[%d].", path, i), p.GetEndpoint()), Evidence: p.GetEvidence()})
	}
	return all
}
