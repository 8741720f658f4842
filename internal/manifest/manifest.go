package manifest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
)

// Version and a kind head the documents that this package reads and writes.
const (
	Version        = "weir/v1"
	Kind           = "VIP"
	KindPool       = "AddressPool"
	KindTenant     = "Tenant"
	KindPrefixList = "PrefixList"
	KindNetwork    = "VirtualNetwork"
	KindOverlay    = "Overlay"
	KindFabric     = "Fabric"
)

// kinds are all that documents may be of.
var kinds = []string{Kind, KindPool, KindPrefixList, KindNetwork, KindOverlay, KindTenant, KindFabric}

// Resource is one document that was read.
type Resource struct {
	// Message is what the document says, without defaults: a *weirv1.VIP, AddressPool, PrefixList,
	// VirtualNetwork, Overlay, Tenant or Fabric.
	Message  proto.Message
	Warnings Problems // what was read but has no effect

	places places
}

// Kind is that of the document.
func (r Resource) Kind() string { return string(r.Message.ProtoReflect().Descriptor().Name()) }

// Name is that of what it describes.
func (r Resource) Name() string {
	if named, ok := r.Message.(interface{ GetName() string }); ok {
		return named.GetName()
	}
	return ""
}

// newMessage is an empty resource of the kind, or nil.
func newMessage(kind string) proto.Message {
	switch kind {
	case Kind:
		return &weirv1.VIP{}
	case KindPool:
		return &weirv1.AddressPool{}
	case KindPrefixList:
		return &weirv1.PrefixList{}
	case KindNetwork:
		return &weirv1.VirtualNetwork{}
	case KindOverlay:
		return &weirv1.Overlay{}
	case KindTenant:
		return &weirv1.Tenant{}
	case KindFabric:
		return &weirv1.Fabric{}
	}
	return nil
}

// validate says what is wrong with it taken alone, with defaults for what it leaves out.
func (r Resource) validate() (err error) {
	switch m := r.Message.(type) {
	case *weirv1.VIP:
		_, err = compile.VIP(m)
	case *weirv1.AddressPool:
		_, err = compile.AddressPool(m)
	case *weirv1.PrefixList:
		_, err = compile.PrefixList(m)
	case *weirv1.VirtualNetwork:
		_, err = compile.Network(m)
	case *weirv1.Overlay:
		_, err = compile.Overlay(m)
	case *weirv1.Tenant:
		_, err = compile.Tenant(m)
	case *weirv1.Fabric:
		_, err = compile.Fabric(m)
	}
	return err
}

// Locate tells an error about a field of the resource, by its path in the message, with its line
// in the file. An error about a field that was left out names the line of what should hold it.
func (r Resource) Locate(err *model.FieldError) *Problem {
	path := r.places.spell(err.Field)
	return r.places.problem(path, err.Reason)
}

// Parse reads all documents of a file. name stands for the file in errors, which are Problems.
func Parse(name string, data []byte) ([]Resource, error) {
	src := &source{name: name, lines: strings.Split(string(data), "\n")}
	roots, problem := documents(src, data)
	var resources []Resource
	var problems Problems
	for _, root := range roots {
		resource, wrong := read(src, root)
		resources = append(resources, resource)
		problems = append(problems, wrong...)
	}
	if problem != nil {
		problems = append(problems, problem)
	}
	if len(roots) == 0 && problem == nil {
		problems = append(problems, &Problem{File: name, Reason: "holds no document"})
	}
	problems = append(problems, Repeated(resources)...)
	if len(problems) > 0 {
		slices.SortStableFunc(problems, func(a, b *Problem) int { return cmp.Compare(a.Line, b.Line) })
		return nil, problems
	}
	return resources, nil
}

// Repeated finds names that several resources bear. The resources may come from several files.
func Repeated(resources []Resource) Problems {
	var problems Problems
	type named struct{ kind, name string }
	first := map[named]Resource{}
	for _, r := range resources {
		if r.Message == nil {
			continue
		}
		name := named{r.Kind(), r.Name()}
		before, taken := first[name]
		if !taken {
			first[name] = r
			continue
		}
		if name.name != "" {
			problems = append(problems, r.Locate(&model.FieldError{
				Field:  "name",
				Reason: fmt.Sprintf("%s is taken already, at %s", name.name, before.places.where("name")),
			}))
		}
	}
	return problems
}

// documents splits a file into the roots of its documents; empty ones are left out. What stands
// before a mistake of syntax is returned along with it.
func documents(src *source, data []byte) ([]*yaml.Node, *Problem) {
	loader, err := yaml.NewLoader(bytes.NewReader(data))
	if err != nil {
		return nil, syntax(src, err)
	}
	var roots []*yaml.Node
	for {
		var document yaml.Node
		err := loader.Load(&document)
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		if err != nil {
			return roots, syntax(src, err)
		}
		for _, root := range document.Content {
			switch {
			case root.Kind == yaml.SequenceNode:
				roots = append(roots, root.Content...)
			case root.Tag != "!!null":
				roots = append(roots, root)
			}
		}
	}
}

func syntax(src *source, err error) *Problem {
	var at *yaml.LoadError
	if !errors.As(err, &at) {
		return &Problem{File: src.name, Reason: "read as YAML: " + err.Error()}
	}
	reason := at.Message
	if at.ContextMsg != "" {
		reason += " " + at.ContextMsg
	}
	return src.problem(at.Mark.Line, "", reason)
}

// read reads one document. A wrong one is returned as far as it could be read.
func read(src *source, root *yaml.Node) (Resource, Problems) {
	r := &reader{
		source:  src,
		places:  places{source: src, line: root.Line, at: map[string]int{}, spelling: spelling},
		refused: map[string]bool{}, touched: map[string]bool{},
	}
	doc := r.value("", root, root.Line).object()
	var resource Resource
	switch {
	case doc.node == nil:
		doc.refuse("must be an object, is empty")
	case doc.fields == nil:
	case doc.isFigure6():
		r.places.spelling = figure6Spelling
		resource.Message = r.figure6(doc)
	default:
		if resource.Message = kindOf(doc); resource.Message != nil {
			r.document(doc, resource.Message)
		}
	}
	if resource.Message == nil || r.stopped() {
		return Resource{}, r.problems
	}
	resource.Warnings, resource.places = r.warnings, r.places
	for _, err := range model.FieldErrors(resource.validate()) {
		if problem := resource.Locate(err); !r.isReported(problem.Field) {
			r.problems = append(r.problems, problem)
		}
	}
	return resource, r.problems
}

// kindOf is an empty resource of the kind that the head of a document names, or nil.
func kindOf(doc *object) proto.Message {
	version, kind := doc.get("apiVersion").required(), doc.get("kind").required()
	if s, ok := version.text(); ok && s != Version && version.node != nil {
		version.refuse("must be %s, is %s", Version, quote(s))
	}
	s, ok := kind.text()
	m := newMessage(s)
	if ok && m == nil && kind.node != nil {
		kind.refuse("must be %s or %s, is %s", strings.Join(kinds[:len(kinds)-1], ", "), kinds[len(kinds)-1], quote(s))
	}
	if len(doc.r.problems) > 0 {
		return nil
	}
	return m
}
