package main

import (
	"crypto/sha1"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The parts of a document of SPDX 2.3 that are used here.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		DataLicense   string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Creation      spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Files         []spdxFile         `json:"files"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID        string         `json:"SPDXID"`
		Name      string         `json:"name"`
		Version   string         `json:"versionInfo"`
		Location  string         `json:"downloadLocation"`
		Analyzed  bool           `json:"filesAnalyzed"`
		Concluded string         `json:"licenseConcluded"`
		Declared  string         `json:"licenseDeclared"`
		Copyright string         `json:"copyrightText"`
		Refs      []spdxExternal `json:"externalRefs,omitempty"`
	}
	spdxExternal struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxFile struct {
		ID        string         `json:"SPDXID"`
		Name      string         `json:"fileName"`
		Types     []string       `json:"fileTypes"`
		Checksums []spdxChecksum `json:"checksums"`
		Concluded string         `json:"licenseConcluded"`
		Copyright string         `json:"copyrightText"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func spdxID(kind, name string) string {
	return "SPDXRef-" + kind + "-" + notInID.ReplaceAllString(strings.Trim(name, "/"), "-")
}

// spdx writes which modules each program links, as the programs themselves say, and what they have
// within them.
func (b *build) spdx(tree []file, out string) (string, error) {
	name := "paddock-" + b.version
	own := spdxID("Package", "paddock")
	doc := spdxDocument{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Creation: spdxCreation{b.time.Format(time.RFC3339), []string{"Tool: paddock-packaging-build"}},
		Packages: []spdxPackage{{
			ID: own, Name: "paddock", Version: b.version, Location: "NOASSERTION",
			Concluded: "Apache-2.0", Declared: "Apache-2.0", Copyright: "2026 the Paddock authors",
		}},
		Relationships: []spdxRelationship{{"SPDXRef-DOCUMENT", "DESCRIBES", own}},
	}
	digest := sha256.New()
	for _, f := range tree {
		if f.kind != regular {
			continue
		}
		info, err := buildinfo.ReadFile(f.source)
		if err != nil {
			continue // a script or a text
		}
		data, err := os.ReadFile(f.source)
		if err != nil {
			return "", err
		}
		digest.Write(data)
		id := spdxID("File", f.path)
		doc.Files = append(doc.Files, spdxFile{
			ID: id, Name: "." + f.path, Types: []string{"BINARY"}, Concluded: "NOASSERTION", Copyright: "NOASSERTION", Checksums: checksums(data),
		})
		doc.Relationships = append(doc.Relationships, spdxRelationship{own, "CONTAINS", id})
		links := func(path, version string) {
			module := spdxID("Package", path)
			if !slices.ContainsFunc(doc.Packages, func(p spdxPackage) bool { return p.ID == module }) {
				doc.Packages = append(doc.Packages, b.spdxModule(module, path, version))
			}
			doc.Relationships = append(doc.Relationships, spdxRelationship{id, "STATIC_LINK", module})
		}
		links(standard, strings.TrimPrefix(info.GoVersion, "go"))
		for _, dep := range info.Deps {
			links(dep.Path, dep.Version)
		}
		if info.Path == uPlot.program {
			if err := doc.embed(b.root, id, &uPlot); err != nil {
				return "", err
			}
		}
	}
	// The name of a document is to be unique, and needs no address to be found at.
	doc.Namespace = "urn:sha256:" + hex.EncodeToString(digest.Sum(nil))
	return write(out, name+".spdx.json", func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(doc)
	})
}

func checksums(data []byte) []spdxChecksum {
	one, two := sha1.Sum(data), sha256.Sum256(data)
	return []spdxChecksum{{"SHA1", hex.EncodeToString(one[:])}, {"SHA256", hex.EncodeToString(two[:])}}
}

// embed enters that a program has an asset within it.
func (doc *spdxDocument) embed(root, program string, a *asset) error {
	m, err := embedded(root, a)
	if err != nil {
		return err
	}
	id, copyright := spdxID("Package", m.path), strings.Join(m.holders(), "\n")
	doc.Packages = append(doc.Packages, spdxPackage{
		ID: id, Name: m.path, Version: m.version, Location: "NOASSERTION", Concluded: m.licence, Declared: m.licence, Copyright: copyright,
		Refs: []spdxExternal{{"PACKAGE-MANAGER", "purl", a.purl + "@" + m.version}},
	})
	doc.Relationships = append(doc.Relationships, spdxRelationship{program, "CONTAINS", id})
	for _, name := range a.files {
		name = path.Join(a.dir, name)
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		file := spdxID("File", name)
		doc.Files = append(doc.Files, spdxFile{
			ID: file, Name: "./" + name, Types: []string{"SOURCE"}, Concluded: m.licence, Copyright: copyright, Checksums: checksums(data),
		})
		doc.Relationships = append(doc.Relationships, spdxRelationship{id, "CONTAINS", file})
	}
	return nil
}

func (b *build) spdxModule(id, name, version string) spdxPackage {
	p := spdxPackage{
		ID: id, Name: name, Version: version, Location: "NOASSERTION", Concluded: "NOASSERTION", Declared: "NOASSERTION", Copyright: "NOASSERTION",
		Refs: []spdxExternal{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path.Clean(name) + "@" + version}},
	}
	if i := slices.IndexFunc(b.modules, func(m module) bool { return m.path == name }); i >= 0 {
		m := b.modules[i]
		p.Concluded, p.Declared, p.Copyright = m.licence, m.licence, strings.Join(m.holders(), "\n")
	}
	return p
}
