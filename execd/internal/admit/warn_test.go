package admit

import "testing"

func TestInterpreter(t *testing.T) {
	for script, want := range map[string]string{
		"":                              "",
		"echo\n#!/bin/sh\n":             "",
		" #!/bin/sh\n":                  "",
		"#!/bin/sh":                     "/bin/sh",
		"#! /bin/sh -e\necho":           "/bin/sh",
		"#!\t/usr/bin/awk\t-f\n":        "/usr/bin/awk",
		"#!/bin/sh\r\ntrue\r\n":         "/bin/sh\r",
		"#!\n/bin/sh\n":                 "",
		"#!/usr/bin/env python3 -u\n":   "python3",
		"#!/usr/bin/env -S A=b perl -w": "perl",
		"#!/usr/bin/env\n":              "/usr/bin/env",
		"#!/usr/bin/env -i\n":           "/usr/bin/env",
		"#!\xff\x00\n":                  "\xff\x00",
	} {
		if got := Interpreter([]byte(script)); got != want {
			t.Errorf("Interpreter(%q) = %q; want %q", script, got, want)
		}
	}
}

func TestSameProgram(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"/bin/sh", "/bin/sh", true},
		{"/bin/sh", "/usr/bin/sh", true},
		{"bash", "/bin/bash", true},
		{"bash", "/opt/bin/bash", false},
		{"/usr/local/bin/bash", "/bin/bash", false},
		{"/bin/bash", "/bin/sh", false},
		{"/opt/bin/zsh", "/opt/bin/zsh", true},
	} {
		if got := sameProgram(c.a, c.b); got != c.want {
			t.Errorf("sameProgram(%q, %q) = %v; want %v", c.a, c.b, got, c.want)
		}
	}
}
