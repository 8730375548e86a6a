package peer

import (
	"errors"
	"strings"
	"testing"
)

// noNames is for files that refer to none.
func noNames(string) (map[string]string, error) { return nil, errors.New("there is no such file") }

func TestParsePeers(t *testing.T) {
	names := func(file string) (map[string]string, error) {
		if file != "usermap" {
			return noNames(file)
		}
		return parseNames(file, []byte("anna a.miller # here\n\nbob bob\n"))
	}
	p, err := parsePeers("peers", []byte(`# the pool
Login1            submit  users=*,!root,!svc-*
node[1-3]  :7000  execute
rack[08-11].example.org execute,submit
node9 10.1.2.9:7001 execute # far away
box [::1]:9 execute zstd=no
cloud submit,execute zstd=yes users=anna
lab submit users=map:usermap

revoked 00AB12 # node9's old one
`), names)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"login1": "login1:6445 submit users=*,!root,!svc-*", "node2": "node2:7000 execute", "rack09.example.org": "rack09.example.org:6445 submit,execute users=*,!root",
		"rack11.example.org": "rack11.example.org:6445 submit,execute users=*,!root", "NODE9": "10.1.2.9:7001 execute", "box": "[::1]:9 execute",
		"lab": "lab:6445 submit users=anna>a.miller,bob>bob", "cloud": "cloud:6445 submit,execute users=anna zstd=yes",
	} {
		line := p.find(name)
		if line == nil {
			t.Errorf("%s has no line", name)
			continue
		}
		if got := (&Trust{peers: p}).lines()[line.Name]; got != want {
			t.Errorf("%s: %s; want %s", name, got, want)
		}
	}
	if len(p.list) != 12 || p.find("node4") != nil || !p.revoked["ab12"] || len(p.revoked) != 1 {
		t.Errorf("%d hosts, revoked %v", len(p.list), p.revoked)
	}
	for _, test := range []struct{ host, user, want string }{
		{"login1", "anna", "anna"},
		{"login1", "root", ""},
		{"login1", "svc-backup", ""},
		{"lab", "anna", "a.miller"},
		{"lab", "root", ""},
		{"lab", "a.miller", ""},
		{"rack08.example.org", "bob", "bob"},
		{"rack08.example.org", "root", ""},
	} {
		if got, ok := p.find(test.host).Local(test.user); ok != (test.want != "") || ok && got != test.want {
			t.Errorf("%s of %s: %q, %t; want %q", test.user, test.host, got, ok, test.want)
		}
	}
}

func TestParsePeersMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"node1":                              "peers:1: want what the host may do",
		"\nnode1 run":                        `peers:2: "run" is not what a host may do`,
		"node1 submit,run":                   `"submit,run" is not`,
		"node1 execute lzma=no":              `"lzma=no" is not known here`,
		"node1 execute zstd":                 `"zstd" is not known here`,
		"node1 execute zstd=fast":            `"fast" is neither yes nor no`,
		"node1 execute zstd=no zstd=yes":     "zstd= is there twice",
		"node1 submit zstd=no":               "zstd= belongs to hosts that may execute",
		"node1 execute users=*":              "users= belongs to hosts that may submit",
		"node1 submit users=* users=*":       "users= is there twice",
		"node1 submit users=":                `"" is no name of a user`,
		"node1 submit users=a,[":             `"[" is no name of a user`,
		"node1 submit users=map:../x":        `"../x" is not the name of a file beside this one`,
		"node1 submit users=map:":            `"" is not the name`,
		"node1 submit users=map:x":           "there is no such file",
		"node1 submit\nNODE1 execute":        "peers:2: host node1 has a line already",
		"node[2-1] submit":                   "from 2 to 1 are no numbers",
		"node[1-99999999] submit":            "are no numbers of hosts",
		"node[001-2] submit":                 "is no name of a host",
		"node[1-2 submit":                    "is no name of a host",
		"node[1-2] 10.0.0.1:1 submit":        "2 hosts cannot have one address",
		"node1 10.0.0.1:0 submit":            "is no address",
		"node1 10.0.0.1:70000 submit":        "is no address",
		"node1 10.0.0.1:x submit":            "is no address",
		"node1 /run/socket:1 submit":         "is no address",
		"-node submit":                       `"-node" is no name of a host`,
		"node/1 submit":                      "is no name of a host",
		"* submit":                           "is no name of a host",
		"revoked":                            "want revoked and one serial number",
		"revoked xyz":                        `"xyz" is no serial number`,
		"revoked 1 2":                        "want revoked and one",
		strings.Repeat("a", 300) + " submit": "is no name of a host",
	} {
		if _, err := parsePeers("peers", []byte(text), noNames); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v; want %s", text, err, want)
		}
	}
	if _, err := parsePeers("peers", []byte("a\nb\nc submit\n"), noNames); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two mistakes: %v", err)
	}
	for text, want := range map[string]string{"anna": "m:1: want two names", "a b\na c": `m:2: user "a" has a line already`, "a b c": "want two names"} {
		if _, err := parseNames("m", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
}

// No text makes the parser fail otherwise than by an error, and what it accepts names no
// more hosts than there may be.
func FuzzParsePeers(f *testing.F) {
	f.Add("login1 submit users=*,!root\nnode[1-8] :6445 execute\nrevoked 3f9a\n")
	f.Add("a[0-9] [::1]:1 submit users=map:m # x")
	f.Fuzz(func(t *testing.T, text string) {
		names := func(string) (map[string]string, error) { return parseNames("m", []byte(text)) }
		p, err := parsePeers("peers", []byte(text), names)
		if len(p.list) > maxPeers || len(p.list) != len(p.byName) {
			t.Errorf("%d hosts, %d names", len(p.list), len(p.byName))
		}
		for i := range p.list {
			line := &p.list[i]
			if p.find(line.Name) != line || line.Roles == 0 || !isHostname(line.Name) {
				t.Errorf("%+v", line)
			}
			if local, ok := line.Local("root"); ok && local == "" {
				t.Error("a user without a name")
			}
		}
		if err != nil && !strings.Contains(err.Error(), ":") {
			t.Errorf("a mistake without a place: %v", err)
		}
	})
}
