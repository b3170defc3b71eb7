// Command language checks the English of the project: comments and messages of Go files, comments
// of scripts and YAML files, and Markdown pages. It also limits the length of files and functions
// of the product, and rejects the package unsafe there. It prints a line for each finding, and
// exits with status 1 if there is one.
//
//	go run ./hack/language [-count] [path...]
//
// -count prints the number of findings per 1,000 comment lines instead, by folder. Without a path
// it checks the whole repository.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	bannedFile       = "hack/banned-words.txt"
	maxCommentColumn = 100
	maxSentenceWords = 35
	maxFileLines     = 450
	maxFunctionLines = 60
)

// finding is one violation.
type finding struct {
	file string
	line int
	text string
}

// checker collects findings.
type checker struct {
	banned, allowed *regexp.Regexp
	findings        []finding
	// commentLines counts the checked lines by folder.
	commentLines map[string]int
	// documented reports by folder whether a package there has a doc comment.
	documented map[string]bool
}

func main() {
	count := flag.Bool("count", false, "print the findings per 1,000 comment lines, by folder")
	flag.Parse()
	c, err := newChecker()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	paths := flag.Args()
	if len(paths) == 0 {
		paths = []string{"."}
	}
	if err := c.check(paths); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if *count {
		c.summarize()
		return
	}
	for _, f := range c.findings {
		fmt.Printf("%s:%d: %s\n", f.file, f.line, f.text)
	}
	if len(c.findings) > 0 {
		os.Exit(1)
	}
}

// newChecker reads the banned phrases.
func newChecker() (*checker, error) {
	text, err := os.ReadFile(bannedFile)
	if err != nil {
		return nil, fmt.Errorf("reading the banned phrases: %w", err)
	}
	var banned, allowed []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		allow, isAllow := strings.CutPrefix(line, "allow ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case isAllow:
			allowed = append(allowed, allow)
		default:
			banned = append(banned, line)
		}
	}
	compile := func(patterns []string) (*regexp.Regexp, error) {
		return regexp.Compile(`(?i)\b(?:` + strings.Join(patterns, "|") + `)\b`)
	}
	c := &checker{commentLines: map[string]int{}, documented: map[string]bool{}}
	if c.banned, err = compile(banned); err != nil {
		return nil, err
	}
	c.allowed, err = compile(allowed)
	return c, err
}

// check checks all files under the paths.
func (c *checker) check(paths []string) error {
	for _, path := range paths {
		if err := filepath.WalkDir(path, c.visit); err != nil {
			return err
		}
	}
	for _, folder := range slices.Sorted(maps.Keys(c.documented)) {
		if !c.documented[folder] {
			c.add(folder, 1, "the package has no doc comment")
		}
	}
	return nil
}

// visit implements fs.WalkDirFunc.
func (c *checker) visit(path string, entry fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	name := entry.Name()
	if entry.IsDir() {
		if name == "bin" || name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") && name != "." && name != ".." {
			return filepath.SkipDir
		}
		return nil
	}
	switch ext := filepath.Ext(name); {
	case ext == ".go":
		return c.goFile(path)
	case ext == ".md":
		return c.markdown(path)
	case ext == ".yaml", ext == ".yml", ext == ".sh", name == "Makefile":
		return c.hashComments(path)
	}
	return nil
}

func (c *checker) add(file string, line int, format string, args ...any) {
	c.findings = append(c.findings, finding{file, line, fmt.Sprintf(format, args...)})
}

// words checks a text for banned phrases.
func (c *checker) words(file string, line int, text string) {
	text = c.allowed.ReplaceAllString(text, "")
	for _, found := range c.banned.FindAllString(text, -1) {
		c.add(file, line, "%q is not the field's English: %s", found, strings.TrimSpace(text))
	}
}

// goFile checks comments, string literals with spaces in them, the length of the file and, in its
// package's folder, the package comment.
func (c *checker) goFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	if ast.IsGenerated(file) {
		return nil
	}
	folder := filepath.Dir(filepath.ToSlash(path))
	c.documented[folder] = c.documented[folder] || file.Doc != nil
	c.product(path, text, files, file)
	for _, group := range file.Comments {
		for _, comment := range group.List {
			at := files.Position(comment.Pos())
			for i, line := range strings.Split(comment.Text, "\n") {
				c.commentLines[folder]++
				c.words(path, at.Line+i, line)
				column := len([]rune(line))
				if i == 0 {
					column += indentOf(text, files.File(comment.Pos()), comment.Pos())
				}
				// A directive or a single long word, such as an address, cannot be wrapped.
				if column > maxCommentColumn && strings.Contains(line, " ") && !strings.HasPrefix(line, "//go:") {
					c.add(path, at.Line+i, "comment of %d columns, at most %d", column, maxCommentColumn)
				}
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if field, ok := node.(*ast.Field); ok && field.Tag != nil {
			return false
		}
		literal, ok := node.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		if value, err := strconv.Unquote(literal.Value); err == nil && strings.Contains(value, " ") {
			c.words(path, files.Position(literal.Pos()).Line, value)
		}
		return true
	})
	return nil
}

// product checks a file of the product: its length, the length of its functions, and its imports.
func (c *checker) product(path string, text []byte, files *token.FileSet, file *ast.File) {
	inPkg, inCmd := strings.HasPrefix(filepath.ToSlash(path), "pkg/"), strings.HasPrefix(filepath.ToSlash(path), "cmd/")
	if !inPkg && !inCmd || strings.HasSuffix(path, "_test.go") {
		return
	}
	if lines := bytes.Count(text, []byte("\n")); inPkg && lines > maxFileLines {
		c.add(path, 1, "file of %d lines, at most %d", lines, maxFileLines)
	}
	for _, declaration := range file.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok {
			first, last := files.Position(function.Pos()).Line, files.Position(function.End()).Line
			if lines := last - first + 1; lines > maxFunctionLines {
				c.add(path, first, "function %s of %d lines, at most %d", function.Name.Name, lines, maxFunctionLines)
			}
		}
	}
	for _, spec := range file.Imports {
		if spec.Path.Value == `"unsafe"` {
			c.add(path, files.Position(spec.Pos()).Line, "the product does not use package unsafe")
		}
	}
}

// indentOf returns the column at which a comment begins, with tabs as 4 columns. A comment behind
// code begins at column 0: the code before it is not counted.
func indentOf(text []byte, file *token.File, pos token.Pos) int {
	start := file.Offset(file.LineStart(file.Line(pos)))
	before := text[start:file.Offset(pos)]
	if len(bytes.TrimSpace(before)) > 0 {
		return 0
	}
	return 4 * len(before)
}

// hashComments checks comments that begin with #.
func (c *checker) hashComments(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for i, line := range strings.Split(string(text), "\n") {
		_, comment, ok := strings.Cut(line, "# ")
		if !ok || strings.Count(line[:len(line)-len(comment)], `"`)%2 == 1 {
			continue
		}
		c.commentLines[filepath.Dir(filepath.ToSlash(path))]++
		c.words(path, i+1, comment)
		if strings.HasPrefix(strings.TrimSpace(line), "#") && len([]rune(line)) > maxCommentColumn && !generated(text) {
			c.add(path, i+1, "comment of %d columns, at most %d", len([]rune(line)), maxCommentColumn)
		}
	}
	return nil
}

func generated(text []byte) bool {
	return bytes.Contains(text, []byte("controller-gen.kubebuilder.io"))
}

var (
	// code is what a page quotes: inline code, and addresses of links.
	code        = regexp.MustCompile("`[^`]*`|\\]\\([^)]*\\)")
	endSentence = regexp.MustCompile(`[.!?:;](?:["')*_]*)(?:\s+|$)`)
)

// markdown checks the prose of a page, and the length of its sentences. A cell of a table, an item
// of a list and a paragraph each end a sentence.
func (c *checker) markdown(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	slashed := filepath.ToSlash(path)
	var paragraph []string
	began, fenced := 0, false
	flush := func() {
		for _, sentence := range endSentence.Split(strings.Join(paragraph, " "), -1) {
			if n := len(strings.Fields(sentence)); n > maxSentenceWords {
				c.add(path, began, "sentence of %d words, at most %d: %.60s…", n, maxSentenceWords, sentence)
			}
		}
		paragraph = nil
	}
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for line := 1; scanner.Scan(); line++ {
		text := scanner.Text()
		trimmed := strings.TrimSpace(text)
		if strings.HasPrefix(trimmed, "```") {
			flush()
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		c.commentLines[filepath.Dir(slashed)]++
		prose := code.ReplaceAllString(text, "X")
		c.words(path, line, prose)
		begins := trimmed == "" || strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, "- ") || strings.HasPrefix(trimmed, "|") ||
			strings.HasPrefix(trimmed, "* ") || len(trimmed) > 1 && trimmed[0] >= '0' && trimmed[0] <= '9' && strings.Contains(trimmed[:min(4, len(trimmed))], ". ")
		if begins {
			flush()
		}
		if trimmed == "" {
			continue
		}
		if strings.HasPrefix(trimmed, "|") {
			for _, cell := range strings.Split(prose, "|") {
				paragraph, began = []string{cell}, line
				flush()
			}
			continue
		}
		if len(paragraph) == 0 {
			began = line
		}
		paragraph = append(paragraph, prose)
	}
	flush()
	return scanner.Err()
}

// summarize prints the findings about words per 1,000 comment lines.
func (c *checker) summarize() {
	words := map[string]int{}
	total, lines := 0, 0
	for _, f := range c.findings {
		if strings.HasPrefix(f.text, `"`) {
			words[filepath.Dir(filepath.ToSlash(f.file))]++
			total++
		}
	}
	for _, folder := range slices.SortedFunc(maps.Keys(c.commentLines), func(a, b string) int {
		return cmp.Or(cmp.Compare(words[b], words[a]), cmp.Compare(a, b))
	}) {
		fmt.Printf("%6d  %7.1f  %s\n", words[folder], 1000*float64(words[folder])/float64(c.commentLines[folder]), folder)
		lines += c.commentLines[folder]
	}
	fmt.Printf("%6d  %7.1f  in all, of %d lines\n", total, 1000*float64(total)/float64(lines), lines)
}
