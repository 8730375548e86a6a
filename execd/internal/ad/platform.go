package ad

import (
	"runtime"
	"strconv"
	"strings"
)

// Platform is the hardware and operating system of a host, in the words of ads.
type Platform struct {
	Arch     string // X86_64
	OpSys    string // LINUX
	Name     string // Debian
	LongName string // Debian GNU/Linux 13 (trixie)
	MajorVer int    // 13; 0: not known
}

// ThisPlatform returns the platform that the program runs on. osRelease is the content
// of /etc/os-release.
func ThisPlatform(osRelease string) Platform {
	arch := map[string]string{"amd64": "X86_64", "386": "INTEL", "arm64": "AARCH64", "ppc64le": "PPC64LE"}[runtime.GOARCH]
	if arch == "" {
		arch = strings.ToUpper(runtime.GOARCH)
	}
	p := Platform{Arch: arch, OpSys: strings.ToUpper(runtime.GOOS)}
	for line := range strings.Lines(osRelease) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			continue
		}
		value = strings.Trim(value, `"'`)
		switch key {
		case "NAME":
			p.Name, _, _ = strings.Cut(value, " ")
		case "PRETTY_NAME":
			p.LongName = value
		case "VERSION_ID":
			major, _, _ := strings.Cut(value, ".")
			p.MajorVer, _ = strconv.Atoi(major) // 0 for a version without a number
		}
	}
	return p
}

func (p *Platform) write(b *builder) {
	b.text("Arch", p.Arch)
	b.text("OpSys", p.OpSys)
	b.text("OpSysName", p.Name)
	b.text("OpSysShortName", p.Name)
	b.text("OpSysLongName", p.LongName)
	if p.MajorVer > 0 {
		b.integer("OpSysMajorVer", int64(p.MajorVer))
		if p.Name != "" {
			b.text("OpSysAndVer", p.Name+strconv.Itoa(p.MajorVer))
		}
	}
}
