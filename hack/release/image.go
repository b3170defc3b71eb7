package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the uid and gid of the images. Pod Security "restricted" requires a number other than 0.
const user = 65532

// imageArchive returns an OCI image layout, as a tar file, with one image for all architectures,
// and the digest of the image. containerd imports it under its name and tag.
func imageArchive(binaries []*binary, registry, version string, date time.Time) ([]byte, string, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range binaries {
		image, err := newImage(b, version, date)
		if err != nil {
			return nil, "", err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: b.os, Architecture: b.arch}},
		})
	}
	digest, err := index.Digest()
	if err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, "", err
	}
	defer os.RemoveAll(dir)
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, "", err
	}
	if err := to.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": version,
		"io.containerd.image.name":          registry + "/" + binaries[0].name + ":" + version,
	})); err != nil {
		return nil, "", err
	}
	content, err := readAll(os.DirFS(dir))
	if err != nil {
		return nil, "", err
	}
	archive, err := tarred(content, date)
	return archive, digest.String(), err
}

// newImage returns an image with the binary, its licences and nothing else, as the Dockerfile
// builds it.
func newImage(b *binary, version string, date time.Time) (v1.Image, error) {
	data, err := tarred(b.content(b.name), date)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: date}}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = b.os, b.arch, v1.Time{Time: date}
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", user, user),
		Entrypoint: []string{"/" + b.name},
		Labels: map[string]string{
			"org.opencontainers.image.title":       b.name,
			"org.opencontainers.image.description": b.description,
			"org.opencontainers.image.source":      repository,
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.version":     version,
		},
	}
	return mutate.ConfigFile(image, config)
}
