package conf

import (
	"os"
	"path/filepath"
	"testing"
)

// A mailer that is named is taken as it is, none is none, and one is looked for only
// where nothing is said.
func TestMailProgram(t *testing.T) {
	for text, want := range map[string]string{"mailer none\n": "", "mailer NONE\n": "", "mailer /opt/mailer\n": "/opt/mailer"} {
		dir := t.TempDir()
		write(t, dir, "sge_conf", text)
		c, err := load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Global.MailProgram(); got != want {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
	defer func(was string) { mailers = was }(mailers)
	mailers = "/nonexistent:/bin/sh"
	for _, text := range []string{"", "mailer auto\n"} {
		dir := t.TempDir()
		write(t, dir, "sge_conf", text)
		c, err := load(dir)
		if err != nil {
			t.Fatal(err)
		}
		if c.Global.Mailer != MailerAuto || c.Global.MailProgram() != "/bin/sh" {
			t.Errorf("%q: mailer %q is %q", text, c.Global.Mailer, c.Global.MailProgram())
		}
	}
}

// What others may write is no mailer, nor what is no program or not root's.
func TestFirstProgram(t *testing.T) {
	dir := t.TempDir()
	path := func(name string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, nil, mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	bad := []string{dir, dir + "/missing", path("text", 0o644), path("group", 0o775), path("others", 0o757)}
	if got := firstProgram(bad); got != "" {
		t.Errorf("%s is taken", got)
	}
	own, want := path("own", 0o755), ""
	if os.Getuid() == 0 {
		want = own
		foreign := path("foreign", 0o755)
		if err := os.Chown(foreign, 1, 1); err != nil {
			t.Fatal(err)
		}
		bad = append(bad, foreign)
	}
	if got := firstProgram(append(bad, own)); got != want {
		t.Errorf("%q is taken; want %q", got, want)
	}
}
