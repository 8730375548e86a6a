package people

import (
	"bytes"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestPage holds commands and options to paddock-pg(1).
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../../../man/man1/paddock-pg.1")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	option := regexp.MustCompile(`(?m)^  -(\S+)`)
	help := func(args ...string) string {
		var out bytes.Buffer
		s := &session{ctx: t.Context(), in: strings.NewReader(""), out: &out, errs: &out}
		if status := s.status(s.main(append(args, "-help"))); status != 0 {
			t.Errorf("%v -help: exit status %d", args, status)
		}
		for line := range strings.Lines(out.String()) {
			if len(strings.TrimRight(line, "\n")) > 80 {
				t.Errorf("%v: the line is wider than 80 columns: %s", args, line)
			}
		}
		return out.String()
	}
	for _, m := range option.FindAllStringSubmatch(help(), -1) {
		if !strings.Contains(page, ".It Fl "+m[1]) {
			t.Errorf("the page has no -%s", m[1])
		}
	}
	for _, c := range commands {
		at := strings.Index(page, ".It Cm "+c.name)
		if at < 0 {
			t.Errorf("the page has no %s", c.name)
			continue
		}
		part := page[at:]
		if next := regexp.MustCompile(`(?m)^\.It Cm `).FindStringIndex(part[1:]); next != nil {
			part = part[:next[0]+1]
		}
		for _, m := range option.FindAllStringSubmatch(help(c.name), -1) {
			if !strings.Contains(part, "Fl "+m[1]) {
				t.Errorf("the page has no -%s of %s", m[1], c.name)
			}
		}
	}
}

// TestUsage has command lines that make no sense, of which none needs a database.
func TestUsage(t *testing.T) {
	t.Setenv("PADDOCK_PG", "")
	for line, want := range map[string]string{
		"":                           "which command? paddock-pg -help lists them",
		"fly":                        `there is no command "fly"; paddock-pg -help lists them`,
		"-x":                         "flag provided but not defined: -x",
		"-d password=x stat":         "the connection has a password: put that into a file of mode 0600, and say passfile=FILE",
		"-d postgres://a:b@h/d stat": "the connection has a password: put that into a file of mode 0600, and say passfile=FILE",
		"del":                        "which job?",
		"del 1,x":                    `"x" is no number of a job`,
		"share":                      "which queue?",
		"share q ann":                `"ann" is not USER=SHARE, a number from 1 to 1000000`,
		"share q ann=0":              `"ann=0" is not USER=SHARE, a number from 1 to 1000000`,
		"share q =1":                 `"=1" is not USER=SHARE, a number from 1 to 1000000`,
		"hold 0":                     `"0" is no number of a job`,
		"alter 1":                    "what is to be changed?",
		"alter -after tomorrow 1":    `"tomorrow" is neither a length of time, as 90s or 2h, nor a time, as 2026-12-31T18:00:00Z`,
		"alter -p x 1":               `invalid value "x" for flag -p: not a whole number`,
		"prune 720h":                 `prune takes no arguments: "720h"`,
		"prune -older -5h":           `invalid value "-5h" for flag -older: it is in the future`,
		"doctor x":                   `doctor takes no arguments: "x"`,
		"add a b":                    "add takes one file",
		"top 1":                      "top takes no arguments, and at least a second",
	} {
		var errs bytes.Buffer
		s := &session{ctx: t.Context(), in: strings.NewReader(""), out: &errs, errs: &errs}
		if status := s.status(s.main(strings.Fields(line))); status != statusUsage {
			t.Errorf("%q: exit status %d", line, status)
		}
		if got := errs.String(); got != "paddock-pg: "+want+"\n" {
			t.Errorf("%q: %s", line, got)
		}
	}
}

func TestAds(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "there is no ad",
		"\n \n":                         "there is no ad",
		"A = 1":                         "1",
		"\n\nA = 1\nB = 2\n\n\n\nC=3\n": "2",
		"A = 1\r\n\r\nB = 2\r\n":        "2",
		"A = 1\n\nB = 2\nC = \"\n":      "line 4: string without end",
		"A = 1\nB\n":                    "line 2: ",
	} {
		n := 0
		err := chunks(newAds(strings.NewReader(text)), func(ads []string, _ bool) error {
			n += len(ads)
			return nil
		})
		switch {
		case err != nil && !strings.HasPrefix(err.Error(), want):
			t.Errorf("%q: %v; want %s", text, err, want)
		case err == nil && want != string(rune('0'+n)):
			t.Errorf("%q: %d ads; want %s", text, n, want)
		}
	}
}

func FuzzAds(f *testing.F) {
	f.Add("A = 1\n\nB = \"x\"\n")
	f.Add("\r\n\n\x00 = 3\n")
	f.Fuzz(func(t *testing.T, text string) {
		a := newAds(strings.NewReader(text))
		for {
			ad, err := a.next()
			if errors.Is(err, io.EOF) || err != nil {
				return
			}
			if strings.TrimSpace(ad) == "" || strings.Contains(ad, "\n\n") {
				t.Fatalf("%q is no ad", ad)
			}
		}
	})
}

func TestMoment(t *testing.T) {
	at, err := moment("2h")
	if err != nil || time.Until(*at) < time.Hour {
		t.Errorf("%v, %v", at, err)
	}
	if at, err = moment("2026-12-31T18:00:00Z"); err != nil || at.Year() != 2026 {
		t.Errorf("%v, %v", at, err)
	}
}

// TestTable has no line be wider than a terminal, and none with what a terminal acts on.
func TestTable(t *testing.T) {
	var out bytes.Buffer
	if err := table(&out, "A B", [][]string{{"x\x1b[2J", strings.Repeat("ä", 100)}}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		if len([]rune(line)) > width || strings.ContainsRune(line, 0x1b) {
			t.Errorf("%q", line)
		}
	}
}
