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

	"github.com/weirlb/weir/internal/model"
)

// Version and a kind head the documents that this package reads and writes.
const (
	Version        = "weir/v1"
	Kind           = "VIP"
	KindPool       = "AddressPool"
	KindTenant     = "Tenant"
	KindPrefixList = "PrefixList"
)

// Resource is one document that was read: a VIP, or a pool, a prefix list or a tenant.
type Resource struct {
	VIP        model.VIP
	Pool       *model.AddressPool
	Tenant     *model.Tenant
	PrefixList *model.PrefixList
	Warnings   Problems // what was read but has no effect

	places places
}

// Kind is that of the document.
func (r Resource) Kind() string {
	switch {
	case r.Pool != nil:
		return KindPool
	case r.Tenant != nil:
		return KindTenant
	case r.PrefixList != nil:
		return KindPrefixList
	}
	return Kind
}

// Name is that of what it describes.
func (r Resource) Name() string {
	switch {
	case r.Pool != nil:
		return r.Pool.Name
	case r.Tenant != nil:
		return r.Tenant.Name
	case r.PrefixList != nil:
		return r.PrefixList.Name
	}
	return r.VIP.Name
}

// validate says what is wrong with it taken alone.
func (r Resource) validate() error {
	switch {
	case r.Pool != nil:
		return r.Pool.Validate()
	case r.Tenant != nil:
		return r.Tenant.Validate()
	case r.PrefixList != nil:
		return r.PrefixList.Validate()
	}
	return r.VIP.Validate()
}

// Locate tells an error about a field of the resource, by its path in the model, with its line in
// the file. An error about a field that was left out names the line of what should hold it.
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
		return Resource{}, r.problems
	case doc.fields == nil:
		return Resource{}, r.problems
	case doc.isFigure6():
		r.places.spelling = figure6Spelling
		resource.VIP = r.figure6(doc)
	default:
		switch kindOf(doc) {
		case Kind:
			resource.VIP = r.vip(doc)
		case KindPool:
			r.places.spelling = poolSpelling
			pool := r.pool(doc)
			resource.Pool = &pool
		case KindTenant:
			r.places.spelling = tenantSpelling
			tenant := r.tenant(doc)
			resource.Tenant = &tenant
		case KindPrefixList:
			r.places.spelling = prefixListSpelling
			list := r.prefixList(doc)
			resource.PrefixList = &list
		default:
			return Resource{}, r.problems
		}
	}
	if r.stopped() {
		return Resource{}, r.problems
	}
	resource.Warnings, resource.places = r.warnings, r.places
	for _, err := range model.FieldErrors(resource.validate()) {
		if problem := resource.Locate(err); !r.told(problem.Field) {
			r.problems = append(r.problems, problem)
		}
	}
	return resource, r.problems
}
