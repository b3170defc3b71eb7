package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing/fstest"
	"time"
)

// files are the regular files of a release, an archive or an image by their names, which are
// relative and have slashes.
type files = fstest.MapFS

// newFile returns a file. Archives keep only whether it is executable.
func newFile(data []byte, executable bool) *fstest.MapFile {
	mode := fs.FileMode(0o644)
	if executable {
		mode = 0o755
	}
	return &fstest.MapFile{Data: data, Mode: mode}
}

// dated returns the files and their folders with the time date.
func dated(from files, date time.Time) files {
	all := files{}
	for name, f := range from {
		all[name] = &fstest.MapFile{Data: f.Data, Mode: f.Mode, ModTime: date}
		for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
			all[folder] = &fstest.MapFile{Mode: fs.ModeDir | 0o755, ModTime: date}
		}
	}
	return all
}

// tarred returns a tar file of the files, sorted, and of their folders. Owner is root, and all
// times are date.
func tarred(from files, date time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := errors.Join(w.AddFS(dated(from, date)), w.Close())
	return out.Bytes(), err
}

func tarGz(from files, date time.Time) ([]byte, error) {
	data, err := tarred(from, date)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(data)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}

func zipped(from files, date time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	err := errors.Join(w.AddFS(dated(from, date)), w.Close())
	return out.Bytes(), err
}

// untar returns the regular files of a tar file, which may be gzipped.
func untar(data []byte) (files, error) {
	var r io.Reader = bytes.NewReader(data)
	if bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		var err error
		if r, err = gzip.NewReader(r); err != nil {
			return nil, err
		}
	}
	all := files{}
	for reader := tar.NewReader(r); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag == tar.TypeDir {
			continue
		}
		if header.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("%s: is no regular file", header.Name)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", header.Name, err)
		}
		all[strings.TrimPrefix(path.Clean(header.Name), "/")] = newFile(content, header.Mode&0o111 != 0)
	}
}

func unzip(data []byte) (files, error) {
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	return readAll(r)
}

// readAll returns the files of a file system, such as a folder.
func readAll(from fs.FS) (files, error) {
	all := files{}
	err := fs.WalkDir(from, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		data, err := fs.ReadFile(from, name)
		all[name] = newFile(data, info.Mode()&0o111 != 0)
		return err
	})
	return all, err
}

// checksums returns the input of sha256sum -c for the files.
func checksums(from files) []byte {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(from)) {
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(from[name].Data), name)
	}
	return out.Bytes()
}
