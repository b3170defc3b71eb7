package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
)

const noAssertion = "NOASSERTION"

// sbom returns an SPDX document about a binary: the binary itself, the standard library and every
// module that the linker recorded in it.
func sbom(b *binary, version string, date time.Time) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(b.data))
	if err != nil {
		return nil, err
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(b.data))
	name := title(b.program, version, b.platform)
	main := goPackage(b.name, version, info.Main.Path)
	main.PackageChecksums = []spdx.Checksum{{Algorithm: spdx.SHA256, Value: sum}}
	main.PackageFileName = executable(b.program, b.platform)
	main.PrimaryPackagePurpose = "APPLICATION"
	main.PackageLicenseDeclared = "Apache-2.0"
	packages := []*spdx.Package{main, goPackage("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "stdlib")}
	for _, m := range modules(info) {
		p := goPackage(m.Path, m.Version, m.Path)
		p.PackageSourceInfo = "Hash of the Go module, as in go.sum: " + m.Sum
		packages = append(packages, p)
	}
	relationships := []*spdx.Relationship{relationship("DOCUMENT", spdx.RelationshipDescribes, main.PackageSPDXIdentifier)}
	for _, p := range packages[1:] {
		relationships = append(relationships, relationship(main.PackageSPDXIdentifier, spdx.RelationshipContains, p.PackageSPDXIdentifier))
	}
	var out bytes.Buffer
	err = spdxjson.Write(&spdx.Document{
		SPDXVersion:    spdx.Version,
		DataLicense:    spdx.DataLicense,
		SPDXIdentifier: "DOCUMENT",
		DocumentName:   name,
		// Only equal binaries have equal documents, so the hash makes the name unique.
		DocumentNamespace: fmt.Sprintf("%s/spdx/%s-%s", repository, name, sum),
		CreationInfo: &spdx.CreationInfo{
			Creators: []spdx.Creator{{CreatorType: "Tool", Creator: "spot-aware-scheduler-hack-release"}},
			Created:  date.Format(time.RFC3339),
		},
		Packages:      packages,
		Relationships: relationships,
	}, &out, spdxjson.Indent("  "))
	return out.Bytes(), err
}

// goPackage returns a package with a package URL, by which scanners find vulnerabilities.
func goPackage(name, version, module string) *spdx.Package {
	id := regexp.MustCompile(`[^a-zA-Z0-9.-]`).ReplaceAllString(name+"-"+version, "-")
	return &spdx.Package{
		PackageName:             name,
		PackageSPDXIdentifier:   spdx.ElementID("Package-" + id),
		PackageVersion:          version,
		PackageDownloadLocation: noAssertion,
		PackageLicenseConcluded: noAssertion,
		PackageLicenseDeclared:  noAssertion,
		PackageCopyrightText:    noAssertion,
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: spdx.CategoryPackageManager,
			RefType:  "purl",
			// The specification of package URLs requires lower case for Go.
			Locator: fmt.Sprintf("pkg:golang/%s@%s", strings.ToLower(module), url.QueryEscape(version)),
		}},
	}
}

func relationship(from spdx.ElementID, kind string, to spdx.ElementID) *spdx.Relationship {
	return &spdx.Relationship{
		RefA: spdx.DocElementID{ElementRefID: from}, Relationship: kind, RefB: spdx.DocElementID{ElementRefID: to},
	}
}
