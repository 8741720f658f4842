package manifest

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirlb/weir/internal/typo"
)

// object is a value with named fields.
type object struct {
	value
	fields map[string]value // nil: there is no object
	order  []string         // names as they stand in the file
}

// object reads the names of v's fields.
func (v value) object() *object {
	o := &object{value: v}
	if v.node == nil {
		return o
	}
	if v.node.Kind != yaml.MappingNode {
		v.refuse("must be an object, is %s", describe(v.node))
		return o
	}
	o.fields = map[string]value{}
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		key, node := v.node.Content[i], v.node.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			v.r.value(v.path, key, key.Line).refuse("a field's name must be text, is %s", describe(key))
			continue
		}
		path := join(v.path, key.Value)
		if before, taken := o.fields[key.Value]; taken {
			value{r: v.r, path: path, line: key.Line}.refuse("is here twice, first on line %d", before.line)
			continue
		}
		o.fields[key.Value] = v.r.value(path, node, key.Line)
		o.order = append(o.order, key.Value)
	}
	return o
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// has says whether the file has the field.
func (o *object) has(name string) bool {
	_, ok := o.fields[name]
	return ok
}

// get returns the field, which may be left out.
func (o *object) get(name string) value {
	if v, ok := o.fields[name]; ok {
		return v
	}
	return value{r: o.r, path: join(o.path, name), line: o.line}
}

// end refuses the fields that are not among the known ones.
func (o *object) end(known ...string) {
	for _, name := range o.order {
		if slices.Contains(known, name) {
			continue
		}
		v := o.fields[name]
		switch near := typo.Nearest(name, known); {
		case strings.HasPrefix(name, "“") || strings.HasPrefix(name, "”"):
			v.refuse(`begins with a typographic quote, write "`)
		case name == "<<":
			v.refuse("merging is not supported, write the fields out or use an alias for the whole value")
		case near != "":
			v.refuse("unknown field, did you mean %s?", near)
		default:
			v.refuse("unknown field, must be one of %s", strings.Join(slices.Sorted(slices.Values(known)), ", "))
		}
	}
}
