package manifest

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// object is a value with named fields. Fields are asked for by name; end refuses the others.
type object struct {
	value
	fields map[string]value // nil: there is no object
	order  []string         // names as they stand in the file
	known  []string         // names that were asked for
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
	o.known = append(o.known, name)
	if v, ok := o.fields[name]; ok {
		return v
	}
	return value{r: o.r, path: join(o.path, name), line: o.line}
}

// ignore accepts fields that are for output only.
func (o *object) ignore(names ...string) {
	o.known = append(o.known, names...)
}

// end refuses the fields that were not asked for.
func (o *object) end() {
	for _, name := range o.order {
		if slices.Contains(o.known, name) {
			continue
		}
		v := o.fields[name]
		switch near := nearest(name, o.known); {
		case strings.HasPrefix(name, "“") || strings.HasPrefix(name, "”"):
			v.refuse(`begins with a typographic quote, write "`)
		case name == "<<":
			v.refuse("merging is not supported, write the fields out or use an alias for the whole value")
		case near != "":
			v.refuse("unknown field, did you mean %s?", near)
		default:
			known := slices.Sorted(slices.Values(o.known))
			v.refuse("unknown field, must be one of %s", strings.Join(known, ", "))
		}
	}
}

// nearest returns the candidate that s is most likely a misspelling of, or nothing.
func nearest(s string, candidates []string) string {
	best, fewest := "", 3
	for _, c := range candidates {
		if len(s) > len(c)+fewest {
			continue
		}
		edits := distance(strings.ToLower(s), strings.ToLower(c))
		if edits < fewest && 2*edits < len(c) {
			best, fewest = c, edits
		}
	}
	return best
}

// distance counts the letters to insert, remove, change or swap with their neighbour to get from
// a to b (the optimal string alignment distance).
func distance(a, b string) int {
	table := make([][]int, len(a)+1)
	for i := range table {
		table[i] = make([]int, len(b)+1)
		table[i][0] = i
	}
	for j := range table[0] {
		table[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := table[i-1][j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			table[i][j] = min(table[i-1][j]+1, table[i][j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				table[i][j] = min(table[i][j], table[i-2][j-2]+1)
			}
		}
	}
	return table[len(a)][len(b)]
}
