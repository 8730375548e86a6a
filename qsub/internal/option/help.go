package option

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"paddock/execd/api"
)

// App returns a command for package cli, which prints help and version from the
// table. It does not parse the command line, whose syntax is that of Grid
// Engine: run gets all words.
func App(c Command, version string, out io.Writer, run cli.ActionFunc) *cli.App {
	app := &cli.App{
		Name:                  c.String(),
		HelpName:              c.String(),
		Usage:                 c.Summary(),
		UsageText:             api.VersionLine(version) + "\n" + strings.TrimSpace("usage: "+c.String()+" [options] "+c.Operands()),
		Version:               version,
		HideHelp:              true,
		HideVersion:           true,
		SkipFlagParsing:       true,
		CustomAppHelpTemplate: helpTemplate,
		Writer:                out,
		Action:                run,
		// cli would print the error and exit.
		ExitErrHandler: func(*cli.Context, error) {},
	}
	var refused []string
	for _, o := range Of(c) {
		if o.Refused {
			refused = append(refused, o.Name)
			continue
		}
		app.Flags = append(app.Flags, cliFlag{o})
	}
	if len(refused) > 0 {
		app.Description = "\nOptions of Grid Engine's " + c.String() + " that are not supported:\n" + wrap(refused)
	}
	return app
}

const helpTemplate = `{{.UsageText}}
{{range .VisibleFlags}}{{.}}
{{end}}{{.Description}}`

// wrap joins words to lines that fit a terminal.
func wrap(words []string) string {
	const width = 78
	var b strings.Builder
	column := 0
	for _, w := range words {
		if column > 0 && column+1+len(w) > width {
			b.WriteByte('\n')
			column = 0
		}
		if column == 0 {
			b.WriteString("  ")
			column = 2
		}
		b.WriteString(" " + w)
		column += 1 + len(w)
	}
	b.WriteByte('\n')
	return b.String()
}

// cliFlag shows an option to package cli, which prints it in the help.
type cliFlag struct{ o *Option }

func (f cliFlag) String() string {
	return fmt.Sprintf("   %-28s%s", "["+f.o.Usage()+"]", f.o.Help)
}
func (f cliFlag) Names() []string           { return []string{f.o.Name[1:]} }
func (f cliFlag) IsSet() bool               { return false }
func (f cliFlag) IsVisible() bool           { return true }
func (f cliFlag) Apply(*flag.FlagSet) error { return nil }
