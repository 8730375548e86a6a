package conf

import (
	"os"
	"strings"

	"paddock/execd/api"
)

// MailerAuto is the mailer of a configuration that names none: one that is found.
const MailerAuto = "auto"

// mailers are where one is looked for, separated by colons: who sends mail by a
// program with options of its own first, then what each mail system has. The Makefile
// sets others.
var mailers = "/usr/bin/mail:/bin/mail:/usr/sbin/sendmail:/usr/lib/sendmail"

// MailProgram returns the program that sends mail, which is looked for where the
// configuration names none; "": there is none.
func (g *Global) MailProgram() string {
	if g.Mailer != MailerAuto {
		return g.Mailer
	}
	return firstProgram(strings.Split(mailers, ":"))
}

// firstProgram returns the first path of a program of root's that nobody else may
// write; "": there is none.
func firstProgram(paths []string) string {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && api.Untrusted(info, 0) == nil {
			return path
		}
	}
	return ""
}
