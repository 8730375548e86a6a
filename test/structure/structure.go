// Package structure tells whether an XML document has the structure that a
// text describes: which elements stand where, in which order, which of them
// repeat, what attributes they have and what their values look like. Tests
// hold the XML of qstat and qhost against it, and that of a real Grid Engine.
package structure

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// Grammar is a description of documents, by path of their elements.
//
// In its file a line like
//
//	/host @name: hostvalue+ (queue | job)*
//
// says what attributes an element has and what stands in it, by rules of
// regular expressions over the names of elements, and a line like
//
//	/host/hostvalue @name= -|\d+
//
// what values it may have. A path of * is that of any element of the name
// behind it: */QR_name. Lines that begin with # are comments.
type Grammar map[string]rule

type rule struct {
	attributes string
	content    *regexp.Regexp // of the elements in it, as "<a><b>"; nil: none
	value      *regexp.Regexp // nil: none
}

// Node is an element.
type Node struct {
	Name     string
	Attr     []xml.Attr
	Text     string // without what is only white space
	Children []*Node
}

// Read reads a grammar.
func Read(file string) (Grammar, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	g := Grammar{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		end := strings.IndexAny(line, ": =")
		for end >= 0 && line[end] == ' ' {
			next := strings.IndexAny(line[end+1:], ":=")
			if next < 0 {
				return nil, fmt.Errorf("%s: no : and no = in %q", file, line)
			}
			// xmlns:xsd is a name.
			if at := end + 1 + next; strings.HasPrefix(line[at:], ":xsd") {
				next += 1 + strings.IndexAny(line[at+1:], ":=")
			}
			end += 1 + next
		}
		if end < 0 {
			return nil, fmt.Errorf("%s: no : and no = in %q", file, line)
		}
		path, attributes, _ := strings.Cut(line[:end], " ")
		if _, twice := g[path]; twice {
			return nil, fmt.Errorf("%s: %s is there twice", file, path)
		}
		r := rule{attributes: attributes}
		what := strings.TrimSpace(line[end+1:])
		if line[end] == ':' {
			what = strings.ReplaceAll(elementName.ReplaceAllString(what, "(?:<$0>)"), " ", "")
		}
		compiled, err := regexp.Compile("(?s)^(?:" + what + ")$")
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, path, err)
		}
		if line[end] == ':' {
			r.content = compiled
		} else {
			r.value = compiled
		}
		g[path] = r
	}
	return g, nil
}

var elementName = regexp.MustCompile(`[A-Za-z_][A-Za-z_-]*`)

// Parse reads a document.
func Parse(document []byte) (*Node, error) {
	d := xml.NewDecoder(bytes.NewReader(document))
	var open []*Node
	var root *Node
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("no XML: %w", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			n := &Node{Name: token.Name.Local, Attr: token.Attr}
			switch {
			case len(open) > 0:
				parent := open[len(open)-1]
				parent.Children = append(parent.Children, n)
			case root != nil:
				return nil, fmt.Errorf("a second root: %s", n.Name)
			default:
				root = n
			}
			open = append(open, n)
		case xml.EndElement:
			n := open[len(open)-1]
			if len(n.Children) > 0 || strings.Contains(n.Text, "\n") && strings.TrimSpace(n.Text) == "" {
				n.Text = strings.TrimSpace(n.Text)
			}
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				open[len(open)-1].Text += string(token)
			} else if strings.TrimSpace(string(token)) != "" {
				return nil, fmt.Errorf("text outside of the root: %q", token)
			}
		}
	}
	if root == nil {
		return nil, errors.New("no element")
	}
	return root, nil
}

// Check returns what is wrong with a document, nothing if it is as described.
func (g Grammar) Check(document []byte) (problems []string) {
	root, err := Parse(document)
	if err != nil {
		return []string{err.Error()}
	}
	g.check("/"+root.Name, root, &problems)
	return problems
}

func (g Grammar) check(path string, n *Node, problems *[]string) {
	wrong := func(format string, args ...any) {
		*problems = append(*problems, path+": "+fmt.Sprintf(format, args...))
	}
	r, ok := g[path]
	if !ok {
		r, ok = g["*/"+n.Name]
	}
	if !ok {
		wrong("not described")
		return
	}
	var attributes []string
	for _, a := range n.Attr {
		name := "@" + a.Name.Local
		if a.Name.Space != "" {
			name = "@" + a.Name.Space + ":" + a.Name.Local
		}
		attributes = append(attributes, name)
	}
	if got := strings.Join(attributes, " "); got != r.attributes {
		wrong("attributes %q; want %q", got, r.attributes)
	}
	var content strings.Builder
	for _, child := range n.Children {
		content.WriteString("<" + child.Name + ">")
	}
	if r.value != nil {
		if !r.value.MatchString(n.Text) || len(n.Children) > 0 {
			wrong("value %q%s; want %s", n.Text, &content, r.value)
		}
		return
	}
	if !r.content.MatchString(content.String()) || strings.TrimSpace(n.Text) != "" {
		wrong("elements %s %q; want %s", &content, strings.TrimSpace(n.Text), r.content)
	}
	for _, child := range n.Children {
		g.check(path+"/"+child.Name, child, problems)
	}
}
