package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLicencesAreCurrent holds the files that name what is linked to what is linked.
func TestLicencesAreCurrent(t *testing.T) {
	files, err := licenceFiles("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the programs link; run make licences-update and look at the difference", name)
		}
	}
}

// TestHolders finds all who are named, and not the example at the end of Apache-2.0.
func TestHolders(t *testing.T) {
	m := module{path: "example.org/m", text: "Copyright (c) 2017 A\n   Copyright © B\nCopyright 2018-2019 C. All rights reserved.\n" +
		"Copyright [yyyy] [name of copyright owner]\nCopyright {yyyy} {name}\n"}
	if got := strings.Join(m.holders(), "|"); got != "2017 A|B|2018-2019 C." {
		t.Errorf("holders: %s", got)
	}
	if got := (module{path: "example.org/m"}).holders(); len(got) != 1 || got[0] != "the authors of example.org/m" {
		t.Errorf("holders of a module that names nobody: %q", got)
	}
}

// TestConcerning finds what is said of packages that are linked, and leaves out what is not.
func TestConcerning(t *testing.T) {
	const text = "of all\n----------\n\nFiles: gone/*\n\nof gone\n\n---------------\nFiles: other/*\nFiles: in/it/*\n\nof it\n"
	if got := concerning(text, "/m", []string{"/m", "/m/in/it/deep", "/m/gone2"}); got != "of all\nFiles: other/*\nFiles: in/it/*\n\nof it" {
		t.Errorf("%q", got)
	}
}

func TestIdentify(t *testing.T) {
	const bsd = "Redistribution and use in source\nand binary forms, with or without"
	for text, want := range map[string]string{
		"Apache License\n  Version 2.0, January 2004":                                                    "Apache-2.0",
		"Permission is hereby granted, free of charge, to any person obtaining a copy\nof this software": "MIT",
		bsd:                               "BSD-2-Clause",
		bsd + " ... Neither the name of":  "BSD-3-Clause",
		"Legal Code\n\nCC0 1.0 Universal": "CC0-1.0",
		bsd + " ... Apache License Version 2.0, January 2004": "Apache-2.0 AND BSD-2-Clause",
		"GNU GENERAL PUBLIC LICENSE":                          "",
	} {
		if got := identify(text); got != want {
			t.Errorf("identify(%q) = %q; want %q", text, got, want)
		}
	}
}

func TestManifest(t *testing.T) {
	const text = "# a comment\n\nd root root 0711 /var/spool/paddock\nt root root 0644 @PREFIX@/lib/x x\nc root adm 0640 /etc/c etc/c\n" +
		"f root root 0755 @BINDIR@/qsub @BIN@/qsub\nl root root 0777 @BINDIR@/qstat qsub\ns root root 0700 /var/spool/paddock/HOST\np paddock-postgres\n" +
		"f root root 0755 @BINDIR@/paddock-pg @BIN@/paddock-pg\n"
	files, err := parseManifest(text, "paddock", "tree", "programs")
	if err != nil {
		t.Fatal(err)
	}
	want := []file{
		{"/var/spool/paddock", directory, "root", "root", 0o711, ""},
		{"/usr/lib/x", regular, "root", "root", 0o644, "tree/x"},
		{"/etc/c", config, "root", "adm", 0o640, "tree/etc/c"},
		{"/usr/bin/qsub", regular, "root", "root", 0o755, "programs/qsub"},
		{"/usr/bin/qstat", link, "root", "root", 0o777, "qsub"},
	}
	if len(files) != len(want) {
		t.Fatalf("got %v; want %v", files, want)
	}
	for i := range want {
		if files[i] != want[i] {
			t.Errorf("got %v; want %v", files[i], want[i])
		}
	}
	if files, err = parseManifest(text, "paddock-postgres", "tree", "programs"); err != nil || len(files) != 1 || files[0].path != "/usr/bin/paddock-pg" {
		t.Errorf("the second package: %v, %v", files, err)
	}
	for _, line := range []string{"p paddock-x", "x root root 0644 /a b", "f root root 0644 /a", "d root root 0644 /a b", "f root root rwx /a b"} {
		if _, err := parseManifest("\n"+line+"\n", "paddock", "", ""); err == nil || !strings.HasPrefix(err.Error(), "packaging/manifest:2: ") {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestOwnDirectories(t *testing.T) {
	var got []string
	for _, dir := range ownDirectories([]file{
		{path: "/etc/paddock", kind: directory},
		{path: "/etc/paddock/queues/all.q"},
		{path: "/usr/share/doc/paddock/examples/x"},
		{path: "/usr/lib/systemd/system/paddock-execd.service"},
	}, "paddock") {
		got = append(got, dir.path)
	}
	if want := "/etc/paddock/queues /usr/share/doc/paddock/examples /usr/share/doc/paddock"; strings.Join(got, " ") != want {
		t.Errorf("got %v; want %v", got, want)
	}
}

const changelog = `# Changelog

## [Unreleased]

### Added

- One thing, which takes
  two lines.

## [1.2.0] - 2026-11-02

- Another.
`

func TestChangelog(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "CHANGELOG.md")
	if err := os.WriteFile(name, []byte(changelog), 0o644); err != nil {
		t.Fatal(err)
	}
	notes, err := readChangelog(name)
	if err != nil {
		t.Fatal(err)
	}
	b := &build{version: "1.3.0-dev", time: time.Date(2026, 11, 3, 4, 5, 6, 0, time.UTC), notes: notes}
	want := "paddock (1.3.0~dev) unstable; urgency=medium\n\n  * One thing, which takes two lines.\n\n -- " + maintainer +
		"  Tue, 03 Nov 2026 04:05:06 +0000\n\npaddock (1.2.0) unstable; urgency=medium\n\n  * Another.\n\n -- " + maintainer +
		"  Mon, 02 Nov 2026 00:00:00 +0000\n"
	if got := b.debianChangelog("paddock"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// A build of what was released, under another version.
	b = &build{version: "1.2.0-dev", time: b.time, notes: []release{{version: "Unreleased"}, {version: "1.2.0", items: []string{"Another."}}}}
	want = "paddock (1.2.0~dev) unstable; urgency=medium\n\n  * As 1.2.0.\n\n -- "
	if got := b.debianChangelog("paddock"); !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant at first\n%s", got, want)
	}
	b.version = "1.2.0"
	if got := b.debianChangelog("paddock"); strings.Count(got, "urgency") != 1 {
		t.Errorf("a release has more than its own changes:\n%s", got)
	}
	const loose = "CHANGELOG.md has changes in [Unreleased], which belong to the section of a version"
	released := strings.Replace(changelog, "## [Unreleased]\n", "## [Unreleased]\n\n## [1.3.0] - 2026-11-03\n", 1)
	for _, tt := range []struct{ text, version, want string }{
		{changelog, "1.2.0", loose},
		{released, "1.3.0", ""},
		{released, "1.2.0", ""},
		{released, "1.2.1", "CHANGELOG.md has no section [1.2.1]"},
		{released, "Unreleased", "the section [Unreleased] of CHANGELOG.md has no date"},
	} {
		if err := os.WriteFile(name, []byte(tt.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := printNotes(dir, tt.version); (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("notes of %s: %v; want %q", tt.version, err, tt.want)
		}
	}
	if err := os.WriteFile(name, []byte("## 1.0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readChangelog(name); err == nil || !strings.Contains(err.Error(), "CHANGELOG.md:1: ") {
		t.Errorf("a heading of another form: %v", err)
	}
}

func TestWrap(t *testing.T) {
	if got, want := wrap("aa bb cccccccc dd", "* ", "  ", 7), "* aa bb\n  cccccccc\n  dd\n"; got != want {
		t.Errorf("got %q; want %q", got, want)
	}
}

// TestEmbedded lists what the page of qweb has of others, with its version, its licence and its sums.
func TestEmbedded(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "qweb")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../..", "-o", program, "./qsub/qweb").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b := &build{root: "../..", version: "1.2.3", time: time.Unix(0, 0)}
	name, err := b.spdx([]file{{path: "/usr/bin/qweb", source: program, kind: regular}}, dir)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	var doc spdxDocument
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(doc.Packages, func(p spdxPackage) bool { return p.Name == "github.com/leeoniya/uPlot" })
	if i < 0 {
		t.Fatalf("it is not listed: %+v", doc.Packages)
	}
	p := doc.Packages[i]
	if p.Version != "1.6.32" || p.Declared != "MIT" || p.Concluded != "MIT" || p.Copyright != "2022 Leon Sorokin" || len(p.Refs) != 1 || p.Refs[0].Locator != "pkg:npm/uplot@1.6.32" {
		t.Errorf("it is %+v", p)
	}
	relates := func(a, b string) bool {
		return slices.Contains(doc.Relationships, spdxRelationship{a, "CONTAINS", b})
	}
	sums := map[string]string{ // as qsub/qweb has them
		"./qsub/qweb/page/uplot/uplot.js":  "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
		"./qsub/qweb/page/uplot/uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
	}
	found := 0
	for _, f := range doc.Files {
		switch want := sums[f.Name]; {
		case f.Name == "./usr/bin/qweb":
			if !relates(f.ID, p.ID) {
				t.Errorf("qweb does not have it: %+v", doc.Relationships)
			}
		case want == "" || f.Checksums[1] != spdxChecksum{"SHA256", want} || f.Concluded != "MIT" || !relates(p.ID, f.ID):
			t.Errorf("%+v", f)
		default:
			found++
		}
	}
	if found != len(sums) {
		t.Errorf("%d of its files are listed; want %d", found, len(sums))
	}
}
