package ad

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"paddock/classad"
	"paddock/execd/api"
)

// attributeName is the form of a name that an attribute of qsub -attr may have.
var attributeName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// matching are the attributes by which work chooses its slot. A job of qsub chooses
// with -l and -q, which hold also where no slot has a policy.
var matching = []string{"Requirements", "Rank"}

// atHome are the attributes of -attr that execd acts on where the job was submitted.
var atHome = []string{"UserLog", "UserLogUseXML", "OutputAd"}

// extras are all that execd itself acts on (see OwnExtras).
var extras = append([]string{"HookKeyword"}, atHome...)

// Elsewhere returns the attributes of -attr that another host needs to run the job.
func Elsewhere(list []string) (rest []string) {
	for _, text := range list {
		if name, _, _ := api.CutAttribute(text); !contains(atHome, name) {
			rest = append(rest, text)
		}
	}
	return rest
}

// Attributes reads the attributes of qsub -attr, each NAME=EXPRESSION, and returns
// them as an ad. The error names the first that a job may not have.
func Attributes(list []string) (*classad.Ad, error) {
	if len(list) > api.MaxAttributes {
		return nil, fmt.Errorf("-attr: %d attributes, at most %d are possible", len(list), api.MaxAttributes)
	}
	attrs := make([]classad.Attr, 0, len(list))
	total := 0
	for _, text := range list {
		name, value, ok := api.CutAttribute(text)
		if total += len(text); total > api.MaxAttributeBytes {
			return nil, fmt.Errorf("-attr: together the attributes have more than the %d bytes that are possible", api.MaxAttributeBytes)
		}
		if !ok || text != api.Visible(text) || !attributeName.MatchString(name) {
			return nil, fmt.Errorf("-attr: %q is not NAME=EXPRESSION", api.Short(text))
		}
		if err := mayBeAttribute(name); err != nil {
			return nil, fmt.Errorf("-attr %s: %w", api.Short(name), err)
		}
		if slices.ContainsFunc(attrs, func(a classad.Attr) bool { return strings.EqualFold(a.Name, name) }) {
			return nil, fmt.Errorf("-attr %s: it is there twice", api.Short(name))
		}
		e, err := classad.ParseOldExpr(value)
		if wrong, ok := errors.AsType[*classad.SyntaxError](err); ok {
			return nil, fmt.Errorf("-attr %s: column %d of %q: %s", api.Short(name), wrong.Column, api.Short(value), wrong.Msg)
		}
		attrs = append(attrs, classad.Attr{Name: name, Expr: e})
	}
	ad := classad.New(attrs...)
	if err := fits(ad); err != nil {
		return nil, fmt.Errorf("-attr: %w", err)
	}
	return ad, nil
}

// NamesHooks reports whether attributes of -attr say which hooks a job has.
func NamesHooks(list []string) bool { return names(list, "HookKeyword") }

// NamesPlugins reports whether attributes name file transfer plugins of a job's own.
func NamesPlugins(list []string) bool { return names(list, transferPlugins) }

func names(list []string, attribute string) bool {
	return slices.ContainsFunc(list, func(text string) bool {
		name, _, _ := api.CutAttribute(text)
		return strings.EqualFold(name, attribute)
	})
}

// mayBeAttribute refuses names that users may not use: those of secrets, of what execd
// itself says of a job, and of what other options say.
func mayBeAttribute(name string) error {
	has := func(prefix string) bool {
		return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
	}
	ofOption := func(r Row) bool { return strings.EqualFold(r.Attribute, name) && (r.Writes || r.Field != "") }
	switch {
	case contains(matching, name):
		return errors.New("jobs of qsub are not matched by it: say what the job needs with -l and -q")
	case has("StarterUserLog"):
		return errors.New("the event log of a job of qsub is UserLog")
	case has("Request"):
		return errors.New("say what the job needs with -l and -pe")
	case has("Context_"):
		return errors.New("it is what -ac says")
	case has(matchPrefix):
		return errors.New("it says what references have become")
	case classad.Private(name):
		return errors.New("it is a secret of claims")
	case contains(ours, name), contains(protected, name) && !contains(extras, name), contains(ended, name), contains(onceRun, name), contains(environments, name), slices.ContainsFunc(Table, ofOption):
		return errors.New("execd itself says it, of every job")
	}
	return nil
}
