package query

import (
	"fmt"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// listed is the order of nodes by their roles: who reads one page alone, as clients do that know of no others, has the muxes
// and the switches, which are few.
var listed = []model.Role{model.RoleMux, model.RoleSwitch, model.RoleHost}

// NewNodePage is NewPage of nodes. Managers that listed nodes by name alone have tokens of another kind.
func NewNodePage(r Request) (Page, error) {
	p, err := NewPage(r)
	if err == nil && p.After != "" && !strings.Contains(p.After, " ") { // as no name does
		err = &model.FieldError{Field: "pageToken", Reason: "is of a manager of another release: leave it out for the first page"}
	}
	return p, err
}

// Nodes is a page of the nodes of a role, or of all of them if it is empty, and the token of the next one: muxes, then
// switches, then hosts, each by name. A node's key is where its role is in listed, and its name.
func Nodes(
	s *store.State, role model.Role, p Page, write func(*store.State, model.Node) *weirv1.Node,
) (nodes []*weirv1.Node, next string) {
	found := Collect[*weirv1.Node](p)
	for i, of := range listed {
		place := fmt.Sprintf("%d ", i)
		after, here := strings.CutPrefix(p.After, place)
		switch {
		case role != "" && role != of, !here && p.After > place:
			continue
		case !here:
			after = ""
		}
		for name, node := range s.Nodes.From(after) {
			if node.Role == of && !found.Add(place+name, func() *weirv1.Node { return write(s, node) }) {
				return found.All, found.Next
			}
		}
	}
	return found.All, found.Next
}
