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
	"path"
	"slices"
	"strings"
	"time"
)

// file is a file of the release or of one of its archives.
type file struct {
	name       string // with slashes, relative
	data       []byte
	executable bool
}

func sorted(files []file) []file {
	return slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
}

// tarred returns a tar file of the files, sorted, and of their folders. Owner is root, and all
// times are date.
func tarred(files []file, date time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	folders := map[string]bool{".": true}
	for _, f := range sorted(files) {
		for _, folder := range missing(folders, path.Dir(f.name)) {
			err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, ModTime: date, Format: tar.FormatPAX})
			if err != nil {
				return nil, err
			}
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644, Size: int64(len(f.data)), ModTime: date, Format: tar.FormatPAX}
		if f.executable {
			header.Mode = 0o755
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// missing adds the folder and its parents to known, and returns the new ones, parents first.
func missing(known map[string]bool, folder string) []string {
	if known[folder] {
		return nil
	}
	known[folder] = true
	return append(missing(known, path.Dir(folder)), folder)
}

func tarGz(files []file, date time.Time) ([]byte, error) {
	data, err := tarred(files, date)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = w.Write(data)
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func zipped(files []file, date time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range sorted(files) {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: date}
		header.SetMode(0o644)
		if f.executable {
			header.SetMode(0o755)
		}
		entry, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// untar returns the regular files of a tar file, which may be gzipped.
func untar(data []byte) ([]file, error) {
	var r io.Reader = bytes.NewReader(data)
	if bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		var err error
		if r, err = gzip.NewReader(r); err != nil {
			return nil, err
		}
	}
	var files []file
	for reader := tar.NewReader(r); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
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
		files = append(files, file{strings.TrimPrefix(path.Clean(header.Name), "/"), content, header.Mode&0o111 != 0})
	}
}

func unzip(data []byte) ([]file, error) {
	r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	var files []file
	for _, entry := range r.File {
		reader, err := entry.Open()
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", entry.Name, err)
		}
		files = append(files, file{entry.Name, content, entry.Mode()&0o111 != 0})
	}
	return files, nil
}

// checksums returns the input of sha256sum -c for the files.
func checksums(files []file) []byte {
	var out bytes.Buffer
	for _, f := range sorted(files) {
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(f.data), f.name)
	}
	return out.Bytes()
}
