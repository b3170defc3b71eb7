package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
)

// The files that state the terms of a module or of a part of it.
var licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|unlicense)([.-][\w.-]*)?$`)

// goFolder contains the licence of Go's standard library.
const goFolder = "go"

// licenses returns the licence files of all modules in a binary, and of Go. For each package in the
// binary these are the files in its folder and in the folders above it, up to the root of its
// module. So parts of a module with terms of their own are included.
func licenses(ctx context.Context, root, pkg string, on platform) (files, error) {
	out, err := run(goCommand(ctx, root, on, "list", "-deps", "-json=Dir,Standard,Module", pkg))
	if err != nil {
		return nil, err
	}
	found := files{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir      string
			Standard bool
			Module   *struct {
				Path, Version, Dir string
				Main               bool
				Replace            *struct{ Path, Version string }
			}
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if p.Standard {
			continue
		}
		m := p.Module
		folder := moduleFolder(m.Path, m.Version)
		if m.Replace != nil {
			folder = moduleFolder(m.Replace.Path, m.Replace.Version)
		}
		if err := addLicenses(found, p.Dir, m.Dir, folder); err != nil {
			return nil, err
		}
	}
	goroot, err := run(goCommand(ctx, root, on, "env", "GOROOT"))
	if err != nil {
		return nil, err
	}
	dir := strings.TrimSpace(string(goroot))
	return found, addLicenses(found, dir, dir, goFolder)
}

// moduleFolder returns the folder with the licences of a module. The main module has no version.
func moduleFolder(module, version string) string {
	if version == "" || version == "(devel)" {
		return module
	}
	return module + "@" + version
}

// addLicenses adds the licence files in dir and in the folders above it, up to root.
func addLicenses(found files, dir, root, folder string) error {
	for ; ; dir = filepath.Dir(dir) {
		relative, err := filepath.Rel(root, dir)
		if err != nil || strings.HasPrefix(relative, "..") {
			return fmt.Errorf("%s is not in the module %s", dir, root)
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if !entry.Type().IsRegular() || !licenseName.MatchString(entry.Name()) || strings.HasSuffix(entry.Name(), ".go") {
				continue
			}
			name := path.Join(folder, filepath.ToSlash(relative), entry.Name())
			data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			if err != nil {
				return err
			}
			found[name] = newFile(data, false)
		}
		if relative == "." {
			return nil
		}
	}
}

// checkLicenses returns an error if the files of an image or a package lack a licence of Go or of a
// module in the binary.
func checkLicenses(content files, info *debug.BuildInfo) error {
	for _, m := range append(modules(info), &info.Main, &debug.Module{Path: goFolder}) {
		folder := moduleFolder(m.Path, m.Version)
		if _, err := content.ReadDir("licenses/" + folder); err != nil {
			return fmt.Errorf("contains no licence of %s", folder)
		}
	}
	return nil
}

// modules returns the modules in a binary except the main module. A replaced module is not in the
// binary, its replacement is.
func modules(info *debug.BuildInfo) []*debug.Module {
	var modules []*debug.Module
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		modules = append(modules, m)
	}
	return modules
}
