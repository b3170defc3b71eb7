// Command sitelinks checks the links of a built site. It prints a line for each broken link, and
// then the counts. It exits with status 1 if a link is broken.
//
//	go run ./hack/sitelinks [-base PATH] FOLDER
//
// A link within the site is broken if the page, or the element that its fragment names, does not
// exist. A link to a file of this repository on GitHub is broken if the checkout does not contain
// the file. The command opens no connection, so it does not check other addresses. But the site
// must be complete: an image, script or style from another host counts as broken. So does a page
// without a link from another page.
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

func main() {
	base := flag.String("base", "/", "path of the site on its host")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "sitelinks: expected one argument, the folder of a built site")
		os.Exit(2)
	}
	s, err := read(os.DirFS(flag.Arg(0)), *base)
	if err != nil {
		fmt.Fprintln(os.Stderr, "sitelinks:", err)
		os.Exit(2)
	}
	broken := s.check(os.DirFS("."))
	for _, line := range broken {
		fmt.Println(line)
	}
	fmt.Printf("sitelinks: %d pages, %d links within the site (%d with a fragment), %d to files of this repository, %d not checked, %d broken\n",
		len(s.pages), s.within, s.fragments, s.repository, s.outside, len(broken))
	if len(broken) > 0 {
		os.Exit(1)
	}
}

// site is a built site.
type site struct {
	files fs.FS
	base  string
	// pages has the HTML files by path in files.
	pages                                  map[string]*page
	within, fragments, repository, outside int
}

// page is an HTML file.
type page struct {
	ids   map[string]bool
	links []link
}

// link is an address in a page. The browser loads a part of the page without a click.
type link struct {
	address string
	isPart  bool
}

// read reads all pages of a site.
func read(files fs.FS, base string) (*site, error) {
	s := &site{files: files, base: base, pages: map[string]*page{}}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".html" {
			return err
		}
		file, err := files.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		root, err := html.Parse(file)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.pages[name] = newPage(root)
		return nil
	})
	if err == nil && len(s.pages) == 0 {
		err = fmt.Errorf("expected pages, found no HTML file")
	}
	return s, err
}

// newPage returns the ids and links of a parsed page.
func newPage(root *html.Node) *page {
	p := &page{ids: map[string]bool{}}
	for node := range root.Descendants() {
		if node.Type != html.ElementNode {
			continue
		}
		attributes := map[string]string{}
		for _, attribute := range node.Attr {
			attributes[attribute.Key] = attribute.Val
		}
		if id := attributes["id"]; id != "" {
			p.ids[id] = true
		}
		for _, key := range []string{"href", "src"} {
			if address, ok := attributes[key]; ok {
				isPart := key == "src" || node.Data == "link" && attributes["rel"] != "canonical"
				p.links = append(p.links, link{address, isPart})
			}
		}
	}
	return p
}

// check returns a line for each broken link. checkout contains the files of the repository.
func (s *site) check(checkout fs.FS) []string {
	var broken []string
	linked := map[string]bool{"index.html": true, "404.html": true}
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		for _, link := range s.pages[name].links {
			target, err := s.follow(name, link, checkout)
			if err != nil {
				broken = append(broken, fmt.Sprintf("%s: link to %s: %v", name, link.address, err))
			}
			if target != name {
				linked[target] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.pages)) {
		if !linked[name] && path.Base(name) != "404.html" {
			broken = append(broken, name+": no other page has a link to it")
		}
	}
	return broken
}

var inRepository = regexp.MustCompile(`^https://github\.com/spot-aware-scheduler/spot-aware-scheduler/(?:blob|tree|edit)/main/([^#?]+)`)

// follow returns the file of the site that a link leads to; "" if it leads elsewhere. The error is
// not nil if the link is broken.
func (s *site) follow(from string, link link, checkout fs.FS) (string, error) {
	address, err := url.Parse(link.address)
	switch {
	case err != nil:
		return "", err
	case address.Scheme == "data":
		return "", nil
	case address.Scheme != "" || address.Host != "":
		if link.isPart {
			return "", fmt.Errorf("expected a file of the site: the browser loads it with the page")
		}
		if match := inRepository.FindStringSubmatch(link.address); match != nil {
			s.repository++
			_, err := fs.Stat(checkout, filepath.Clean(match[1]))
			return "", err
		}
		s.outside++
		return "", nil
	}
	s.within++
	absolute := (&url.URL{Path: s.base + from}).ResolveReference(address)
	target, ok := strings.CutPrefix(absolute.Path, s.base)
	if !ok {
		return "", fmt.Errorf("expected a path that begins with %s", s.base)
	}
	if target == "" || strings.HasSuffix(target, "/") {
		target += "index.html"
	}
	info, err := fs.Stat(s.files, target)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		return "", fmt.Errorf("%s is a folder: expected a slash at the end", target)
	}
	if address.Fragment != "" {
		s.fragments++
		if page := s.pages[target]; page == nil || !page.ids[address.Fragment] {
			return "", fmt.Errorf("%s contains no element with the id %q", target, address.Fragment)
		}
	}
	return target, nil
}
