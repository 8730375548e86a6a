package conf

import (
	"os"
	"strings"

	"paddock/execd/api"
)

// MailerAuto is the mailer if the configuration names none: MailProgram looks for one.
const MailerAuto = "auto"

// mailers are the programs to look for, separated by colons: first mail programs with
// options of their own, then what each mail system has. The Makefile sets others.
var mailers = "/usr/bin/mail:/bin/mail:/usr/sbin/sendmail:/usr/lib/sendmail"

// MailProgram returns the program that sends mail, and looks for one if the
// configuration names none; "": there is none.
func (g *Global) MailProgram() string {
	if g.Mailer != MailerAuto {
		return g.Mailer
	}
	return firstProgram(strings.Split(mailers, ":"))
}

// firstProgram returns the first path of a program that belongs to root and that nobody
// else may write; "": there is none.
func firstProgram(paths []string) string {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && api.Untrusted(info, 0) == nil {
			return path
		}
	}
	return ""
}
