// Command language checks the English of the project: comments and messages of Go files, comments
// of scripts and YAML files, and Markdown pages. It prints a line for each finding, and exits with
// status 1 if there is one.
//
//	go run ./hack/language [path...]
//
// Without a path it checks the whole repository.
//
// Kept linters do not replace it: misspell knows only misspelled words, lll cannot limit comments
// to fewer columns than code, and vale reads no messages in code, and needs cgo for comments.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const (
	bannedFile       = "hack/banned-words.txt"
	maxCommentColumn = 100
	maxSentenceWords = 35
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
}

func main() {
	paths := os.Args[1:]
	if len(paths) == 0 {
		paths = []string{"."}
	}
	c, err := newChecker()
	if err == nil {
		err = c.check(paths)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
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
	c := &checker{}
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

// goFile checks comments, and string literals with spaces in them.
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
	for _, group := range file.Comments {
		for _, comment := range group.List {
			at := files.Position(comment.Pos())
			for i, line := range strings.Split(comment.Text, "\n") {
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
		prose := code.ReplaceAllString(text, "X")
		c.words(path, line, prose)
		begins := trimmed == "" || strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, "- ") || strings.HasPrefix(trimmed, "|") ||
			strings.HasPrefix(
				trimmed,
				"* ",
			) || len(trimmed) > 1 && trimmed[0] >= '0' && trimmed[0] <= '9' && strings.Contains(trimmed[:min(4, len(trimmed))], ". ")
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
