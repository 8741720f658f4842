package weir

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// Bounds of a package, in lines written by hand without tests, and of a type, in methods.
const (
	packageLines = 2500
	typeMethods  = 25
)

// large are the packages and types beyond the bounds, each with a bound of its own. A bound here only becomes lower; who
// splits a package strikes it out.
var large = map[string]int{}

func TestPackagesAndTypesAreSmall(t *testing.T) {
	lines, methods := map[string]int{}, map[string]int{}
	for _, path := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		dir := filepath.Dir(path)
		lines[dir] += strings.Count(read(t, path), "\n")
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv != nil {
				methods[dir+"."+receiver(fn)]++
			}
		}
	}
	holdTo(t, lines, packageLines, "lines")
	holdTo(t, methods, typeMethods, "methods")
	for name := range large {
		if lines[name]+methods[name] == 0 {
			t.Errorf("%s is not there: strike it from the list of large ones", name)
		}
	}
}

// receiver is the name of a method's type.
func receiver(fn *ast.FuncDecl) string {
	of := fn.Recv.List[0].Type
	for {
		switch at := of.(type) {
		case *ast.StarExpr:
			of = at.X
		case *ast.IndexExpr:
			of = at.X
		case *ast.IndexListExpr:
			of = at.X
		case *ast.Ident:
			return at.Name
		default:
			return ""
		}
	}
}

func holdTo(t *testing.T, sizes map[string]int, bound int, unit string) {
	t.Helper()
	for name, size := range sizes {
		own, listed := large[name]
		switch {
		case listed && size > own:
			t.Errorf("%s has %d %s, more than the %d that it had: split it", name, size, unit, own)
		case listed && size <= bound:
			t.Errorf("%s has only %d %s: strike it from the list of large ones", name, size, unit)
		case !listed && size > bound:
			t.Errorf("%s has %d %s, more than %d: split it", name, size, unit, bound)
		}
	}
}
