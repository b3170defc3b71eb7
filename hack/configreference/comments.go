package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/spot-aware-scheduler/spot-aware-scheduler/pkg/apis/config"
)

const module = "github.com/spot-aware-scheduler/spot-aware-scheduler/"

// sources are the packages that have been read, by folder.
type sources map[string]*source

// source is what a package contains about its types.
type source struct {
	// comments are the comments of types and fields by "Type" or "Type.Field".
	comments map[string]string
	// words are the constants of each type, in order.
	words map[string][]string
}

// words returns the constants of a type.
func (s sources) words(t reflect.Type) ([]string, error) {
	p, err := s.of(t)
	if err == nil && len(p.words[t.Name()]) == 0 {
		err = fmt.Errorf("expected constants of type %s, or a description of its values", t)
	}
	if err != nil {
		return nil, err
	}
	return p.words[t.Name()], nil
}

// of returns the package of a type.
func (s sources) of(t reflect.Type) (*source, error) {
	folder := strings.TrimPrefix(t.PkgPath(), module)
	if s[folder] == nil {
		p, err := read(folder)
		if err != nil {
			return nil, err
		}
		s[folder] = p
	}
	return s[folder], nil
}

// ofType returns the first paragraph of a type's comment.
func (s sources) ofType(t reflect.Type) (string, error) {
	return s.find(t, t.Name(), t.Name(), t.Name())
}

// ofField returns the first paragraph of a field's comment, about the name of the field in YAML. A
// struct without a comment has the comment of its type.
func (s sources) ofField(parent reflect.Type, member reflect.StructField) (string, error) {
	about, err := s.find(parent, parent.Name()+"."+member.Name, member.Name, name(member))
	if err != nil && member.Type.Kind() == reflect.Struct {
		return s.find(member.Type, member.Type.Name(), member.Type.Name(), name(member))
	}
	return about, err
}

// find returns a comment that begins with a name in Go, as one line of Markdown that begins with
// another name.
func (s sources) find(t reflect.Type, key, inGo, inYAML string) (string, error) {
	p, err := s.of(t)
	if err != nil {
		return "", err
	}
	text, _, _ := strings.Cut(p.comments[key], "\n\n")
	if text == "" {
		return "", fmt.Errorf("%s: %s: expected a comment", t.PkgPath(), key)
	}
	text = markdown(text)
	rest, ok := strings.CutPrefix(text, inGo)
	if !ok {
		return "", fmt.Errorf("%s: %s: expected a comment that begins with the name, got %q", t.PkgPath(), key, text)
	}
	// The comment of a boolean is "Enabled: the controller taints nodes".
	if sentence, ok := strings.CutPrefix(rest, ": "); ok {
		return "If true, " + strings.TrimPrefix(sentence, "if true, "), nil
	}
	if inYAML == "" { // an embedded struct
		return "These settings" + rest, nil
	}
	return "`" + inYAML + "`" + rest, nil
}

// read returns the comments and constants of the package in a folder.
func read(folder string) (*source, error) {
	found := &source{comments: map[string]string{}, words: map[string][]string{}}
	err := parse(folder, func(node ast.Node) {
		declaration, ok := node.(*ast.GenDecl)
		if !ok {
			return
		}
		for _, spec := range declaration.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				found.comments[spec.Name.Name] = declaration.Doc.Text()
				if structure, ok := spec.Type.(*ast.StructType); ok {
					found.addFields(spec.Name.Name, structure)
				}
			case *ast.ValueSpec:
				if t, ok := spec.Type.(*ast.Ident); ok && len(spec.Values) == 1 {
					if word, err := value(spec.Values[0]); err == nil {
						found.words[t.Name] = append(found.words[t.Name], word)
					}
				}
			}
		}
	})
	return found, err
}

// addFields adds the comments of the fields of a struct. The name of an embedded field is its type.
func (s *source) addFields(of string, structure *ast.StructType) {
	for _, member := range structure.Fields.List {
		names := member.Names
		if embedded, ok := member.Type.(*ast.Ident); ok && len(names) == 0 {
			names = []*ast.Ident{embedded}
		}
		for _, name := range names {
			s.comments[of+"."+name.Name] = member.Doc.Text()
		}
	}
}

// parse calls visit for each node in the Go files of a folder, without tests.
func parse(folder string, visit func(ast.Node)) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s: %w", folder, os.ErrNotExist)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			visit(node)
			return true
		})
	}
	return nil
}

// flags returns the flags that the package in a folder adds with methods such as StringVar.
func flags(folder string) ([]row, error) {
	var rows []row
	var failed error
	err := parse(folder, func(node ast.Node) {
		call, ok := node.(*ast.CallExpr)
		if !ok || len(call.Args) != 4 {
			return
		}
		if method, ok := call.Fun.(*ast.SelectorExpr); !ok || !strings.HasSuffix(method.Sel.Name, "Var") {
			return
		}
		var texts []string
		for _, arg := range call.Args[1:] {
			text, err := value(arg)
			if err != nil && failed == nil {
				failed = fmt.Errorf("a flag of %s: %w", texts, err)
			}
			texts = append(texts, text)
		}
		rows = append(rows, row{name: "--" + texts[0], def: texts[1], meaning: markdown(texts[2])})
	})
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("found no flag")
	}
	if err == nil {
		err = failed
	}
	return rows, err
}

// value returns the value of an expression: a constant, a sum of strings, or a list.
func value(expression ast.Expr) (string, error) {
	switch e := expression.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return e.Value, nil
		}
		return strconv.Unquote(e.Value)
	case *ast.Ident: // true or false
		return e.Name, nil
	case *ast.BinaryExpr:
		x, err := value(e.X)
		if err != nil {
			return "", err
		}
		y, err := value(e.Y)
		return x + y, err
	case *ast.CompositeLit:
		var elements []string
		for _, element := range e.Elts {
			text, err := value(element)
			if err != nil {
				return "", err
			}
			elements = append(elements, text)
		}
		return strings.Join(elements, ","), nil
	case *ast.SelectorExpr:
		if e.Sel.Name == "DefaultProfile" {
			return config.DefaultProfile, nil
		}
	}
	return "", fmt.Errorf("expected a literal or config.DefaultProfile, got %T", expression)
}

// markdown returns a text as one line of Markdown.
func markdown(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "_", `\_`).Replace(strings.Join(strings.Fields(text), " "))
}
