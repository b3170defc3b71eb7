package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// image is the content of a docker-archive.
type image struct {
	names  []string
	config config
	files  []file // files of all layers, including directories
}

// config contains the checked fields of an image's configuration.
type config struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Config       struct {
		User       string
		Entrypoint []string
		Cmd        []string
		Labels     map[string]string
	} `json:"config"`
}

// file is an entry of a layer.
type file struct {
	path     string // absolute in a layer; unchanged in the archive itself
	mode     fs.FileMode
	uid, gid int
	data     []byte
}

// readImage reads an archive that contains one image.
func readImage(archive string) (*image, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := readTar(f)
	if err != nil {
		return nil, err
	}
	members := map[string][]byte{}
	for _, entry := range entries {
		members[entry.path] = entry.data
	}

	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(members["manifest.json"], &manifest); err != nil {
		return nil, fmt.Errorf("manifest.json: %w", err)
	}
	if len(manifest) != 1 {
		return nil, fmt.Errorf("manifest.json: %d images, want 1", len(manifest))
	}
	result := &image{names: manifest[0].RepoTags}
	if err := json.Unmarshal(members[manifest[0].Config], &result.config); err != nil {
		return nil, fmt.Errorf("%s: %w", manifest[0].Config, err)
	}
	for _, name := range manifest[0].Layers {
		layer, ok := members[name]
		if !ok {
			return nil, fmt.Errorf("layer %s: is missing", name)
		}
		files, err := readTar(bytes.NewReader(layer))
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", name, err)
		}
		for _, f := range files {
			f.path = path.Join("/", f.path)
			result.files = append(result.files, f)
		}
	}
	return result, nil
}

// readTar returns every entry of a tar file, which may be gzipped.
func readTar(r io.Reader) ([]file, error) {
	buffered := bufio.NewReader(r)
	r = buffered
	if magic, _ := buffered.Peek(2); string(magic) == "\x1f\x8b" {
		var err error
		if r, err = gzip.NewReader(buffered); err != nil {
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
		data, err := io.ReadAll(reader)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", header.Name, err)
		}
		files = append(files, file{header.Name, header.FileInfo().Mode(), header.Uid, header.Gid, data})
	}
}
