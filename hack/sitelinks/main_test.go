package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestCheck(t *testing.T) {
	const repository = "https://github.com/spot-aware-scheduler/spot-aware-scheduler/blob/"
	for name, test := range map[string]struct{ link, want string }{
		"page":                          {`<a href="/docs/design/a.html">`, ""},
		"relative":                      {`<a href="design/a.html#b">`, ""},
		"fragment of the same page":     {`<a href="#top">`, ""},
		"folder":                        {`<a href="/docs/v1/">`, ""},
		"image":                         {`<img src="p.svg">`, ""},
		"inline image":                  {`<img src="data:image/svg+xml,x">`, ""},
		"file of the repository":        {`<a href="` + repository + `main/go.mod#L1">`, ""},
		"file of a release":             {`<a href="` + repository + `v1/gone">`, ""},
		"another host":                  {`<a href="https://kubernetes.io/docs/">`, ""},
		"no page":                       {`<a href="/docs/gone.html">`, "link to /docs/gone.html: open gone.html: file does not exist"},
		"no fragment":                   {`<a href="design/a.html#c">`, `design/a.html contains no element with the id "c"`},
		"outside the site":              {`<a href="/design/a.html">`, "expected a path that begins with /docs/"},
		"folder without slash":          {`<a href="v1">`, "v1 is a folder"},
		"no image":                      {`<img src="gone.svg">`, "gone.svg: file does not exist"},
		"no file of the repository":     {`<a href="` + repository + `main/gone">`, "gone: file does not exist"},
		"script of another host":        {`<script src="https://cdn.example/x.js"></script>`, "expected a file of the site"},
		"style of another host":         {`<link rel="stylesheet" href="//cdn.example/x.css">`, "expected a file of the site"},
		"address that does not parse":   {`<a href="http://[">`, "missing ']' in host"},
		"address of the page elsewhere": {`<link rel="canonical" href="https://spot.example/docs/">`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{
				"index.html":    {Data: []byte(`<h1 id="top"><a href="design/a.html"></a><a href="v1/"></a>` + test.link)},
				"design/a.html": {Data: []byte(`<p id="b">`)},
				"v1/index.html": {},
				"p.svg":         {},
			}
			s, err := read(files, "/docs/")
			if err != nil {
				t.Fatal(err)
			}
			broken := s.check(fstest.MapFS{"go.mod": {}})
			if got := strings.Join(broken, "\n"); test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("%s: got %q, want %q", test.link, got, test.want)
			}
		})
	}
}

func TestEveryPageIsLinked(t *testing.T) {
	files := fstest.MapFS{"index.html": {}, "404.html": {}, "lonely.html": {Data: []byte(`<a href="lonely.html">`)}}
	s, err := read(files, "/")
	if err != nil {
		t.Fatal(err)
	}
	if broken := s.check(fstest.MapFS{}); len(broken) != 1 || !strings.HasPrefix(broken[0], "lonely.html: no other page") {
		t.Errorf("got %q, want one line about lonely.html", broken)
	}
}

func TestNoPages(t *testing.T) {
	if _, err := read(fstest.MapFS{"a.css": {}}, "/"); err == nil {
		t.Error("expected an error for a folder without pages")
	}
}
