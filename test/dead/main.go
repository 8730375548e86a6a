// Dead compares what the programs do not use, but for tests, with the file list
// beside it, which has a reason for each:
//
//	go run ./test/dead PROGRAM... < UNREACHABLE
//
// UNREACHABLE is what deadcode prints of the same programs. It takes every exported
// method of a value that is printed for reached; so what no program names counts as
// well: functions, methods that are in no interface, and fields that nothing sets but the
// decoding of JSON. A line of the list that is no longer true is an error, too.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dead:", err)
		os.Exit(1)
	}
}

func run(programs []string) error {
	p, err := load(programs)
	if err != nil {
		return err
	}
	dead := p.unnamed()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		// path/file.go:1:2: unreachable func: Type.Name
		if lines.Text() == "" { // nothing is unreachable
			continue
		}
		place, name, ok := strings.Cut(lines.Text(), ": unreachable func: ")
		if !ok {
			return fmt.Errorf("deadcode says %q", lines.Text())
		}
		file, _, _ := strings.Cut(place, ":")
		dead[filepath.ToSlash(filepath.Dir(file))+"."+name] = place
	}
	text, err := os.ReadFile("test/dead/list")
	if err != nil {
		return err
	}
	problems := compare(dead, string(text))
	for _, problem := range problems {
		fmt.Println(problem)
	}
	if len(problems) > 0 {
		return errors.New("remove it, use it, or write a line with the reason into test/dead/list")
	}
	return nil
}

// compare returns what is dead and not listed, and what is listed and not dead. A
// line is NAME: REASON; a name that ends in .* stands for all that a type has.
func compare(dead map[string]string, list string) (problems []string) {
	listed := map[string]bool{}
	for line := range strings.Lines(list) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, reason, _ := strings.Cut(line, ": ")
		_, twice := listed[name]
		if twice || strings.TrimSpace(reason) == "" {
			problems = append(problems, "test/dead/list: "+name+": is there twice, or without a reason")
		}
		listed[name] = false
	}
	for _, name := range slices.Sorted(maps.Keys(dead)) {
		of := name[:strings.LastIndexByte(name, '.')] + ".*"
		_, exactly := listed[name]
		_, all := listed[of]
		switch {
		case exactly:
			listed[name] = true
		case all:
			listed[of] = true
		default:
			problems = append(problems, dead[name]+": no program uses "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if !listed[name] {
			problems = append(problems, "test/dead/list: "+name+": is used, or is gone")
		}
	}
	return problems
}

// pack is a package as go list has it.
type pack struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	Module                  *struct {
		Main bool
		Dir  string
	}
}

// program is the sources of programs, and what is named in them.
type program struct {
	files  *token.FileSet
	root   string // of the module
	own    map[string]*types.Package
	parsed []*ast.File
	info   types.Info
}

// load reads the sources of programs.
func load(programs []string) (*program, error) {
	p := &program{
		files: token.NewFileSet(), own: map[string]*types.Package{},
		info: types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}},
	}
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,Module"}, programs...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	exports := map[string]string{}
	others := importer.ForCompiler(p.files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	config := types.Config{Importer: either{p.own, others}}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var l pack
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return p, nil
		} else if err != nil {
			return nil, err
		}
		exports[l.ImportPath] = l.Export
		if l.Module == nil || !l.Module.Main {
			continue
		}
		p.root = l.Module.Dir
		var parsed []*ast.File
		for _, name := range l.GoFiles {
			f, err := parser.ParseFile(p.files, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			parsed = append(parsed, f)
		}
		p.parsed = append(p.parsed, parsed...)
		if p.own[l.ImportPath], err = config.Check(l.ImportPath, p.files, parsed, &p.info); err != nil {
			return nil, err
		}
	}
}

// either imports packages of the module from their sources, and others as compiled.
type either struct {
	own    map[string]*types.Package
	others types.Importer
}

func (e either) Import(path string) (*types.Package, error) {
	if own := e.own[path]; own != nil {
		return own, nil
	}
	return e.others.Import(path)
}

// unnamed returns the functions and methods that nothing names and the fields that
// nothing sets, with their places.
func (p *program) unnamed() map[string]string {
	used, set, called := map[types.Object]bool{}, p.set(), p.interfaces()
	for _, o := range p.info.Uses {
		used[origin(o)] = true
	}
	dead := map[string]string{}
	for _, o := range p.info.Defs {
		switch o := o.(type) {
		case *types.Func:
			method := o.Signature().Recv() != nil
			if used[o] || method && called[o.Name()] || !method && (o.Name() == "main" || o.Name() == "init") {
				continue
			}
			name := o.Name()
			if method {
				name = typeName(o.Signature().Recv().Type()) + "." + name
			}
			p.note(dead, o, name)
		case *types.TypeName:
			fields, ok := o.Type().Underlying().(*types.Struct)
			if !ok || o.IsAlias() {
				continue
			}
			for i := range fields.NumFields() {
				if f := fields.Field(i); !set[f] && !f.Embedded() && fields.Tag(i) == "" && (f.Exported() || isHook(f.Type())) {
					p.note(dead, f, o.Name()+"."+f.Name())
				}
			}
		}
	}
	return dead
}

// note enters the place of an object under its name in its package.
func (p *program) note(dead map[string]string, o types.Object, name string) {
	at := p.files.Position(o.Pos())
	file, _ := filepath.Rel(p.root, at.Filename)
	dead[filepath.ToSlash(filepath.Dir(file))+"."+name] = fmt.Sprintf("%s:%d", file, at.Line)
}

// isHook reports whether a field is of a type that is nil where nobody sets it.
func isHook(t types.Type) bool {
	switch t.Underlying().(type) {
	case *types.Interface, *types.Signature:
		return true
	}
	return false
}

// origin returns a method or a field as its generic type declares it.
func origin(o types.Object) types.Object {
	switch o := o.(type) {
	case *types.Func:
		return o.Origin()
	case *types.Var:
		return o.Origin()
	}
	return o
}

// typeName returns the name of a receiver's type.
func typeName(t types.Type) string {
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	return t.(*types.Named).Obj().Name()
}

// interfaces returns the names of the methods of all interfaces that the programs could
// call them by.
func (p *program) interfaces() map[string]bool {
	names, seen := map[string]bool{"Error": true, "Is": true, "Unwrap": true}, map[*types.Package]bool{}
	note := func(t types.Type) {
		if i, ok := t.Underlying().(*types.Interface); ok {
			for m := range i.Methods() {
				names[m.Name()] = true
			}
		}
	}
	var visit func(*types.Package)
	visit = func(of *types.Package) {
		if seen[of] {
			return
		}
		seen[of] = true
		for _, name := range of.Scope().Names() {
			if t, ok := of.Scope().Lookup(name).(*types.TypeName); ok {
				note(t.Type())
			}
		}
		for _, i := range of.Imports() {
			visit(i)
		}
	}
	for _, own := range p.own {
		visit(own)
	}
	for _, v := range p.info.Types {
		if v.IsType() {
			note(v.Type)
		}
	}
	return names
}

// set returns the fields that are set: by an assignment, in a literal, by a conversion,
// or through their address.
func (p *program) set() map[types.Object]bool {
	set := map[types.Object]bool{}
	note := func(e ast.Expr) {
		for {
			switch x := ast.Unparen(e).(type) {
			case *ast.IndexExpr:
				e = x.X
			case *ast.SelectorExpr:
				set[origin(p.info.Uses[x.Sel])] = true
				if _, ok := p.info.Types[x.X].Type.(*types.Pointer); ok {
					return
				}
				e = x.X
			default:
				return
			}
		}
	}
	for _, f := range p.parsed {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					note(e)
				}
			case *ast.IncDecStmt:
				note(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					note(n.X)
				}
			case *ast.SelectorExpr: // a method may have the address
				if m, ok := p.info.Uses[n.Sel].(*types.Func); ok && m.Signature().Recv() != nil {
					if _, ok := m.Signature().Recv().Type().(*types.Pointer); ok {
						note(n.X)
					}
				}
			case *ast.CallExpr:
				if to := p.info.Types[n.Fun]; to.IsType() {
					if fields, ok := to.Type.Underlying().(*types.Struct); ok {
						for f := range fields.Fields() {
							set[origin(f)] = true
						}
					}
				}
			case *ast.CompositeLit:
				t := p.info.Types[n].Type.Underlying()
				if pointer, ok := t.(*types.Pointer); ok { // in a list of them
					t = pointer.Elem().Underlying()
				}
				fields, ok := t.(*types.Struct)
				for i, e := range n.Elts {
					switch kv, keyed := e.(*ast.KeyValueExpr); {
					case !ok:
					case keyed:
						set[origin(p.info.Uses[kv.Key.(*ast.Ident)])] = true
					default:
						set[origin(fields.Field(i))] = true
					}
				}
			}
			return true
		})
	}
	return set
}
