package conf

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"paddock/execd/internal/conf/spell"
)

// standardComplex are the built-in attributes of Grid Engine 8.1.9: name, shortcut,
// type, relop, requestable, consumable, default, urgency.
const standardComplex = `
arch             a        STRING == YES NO  NONE  0
calendar         c        STRING == YES NO  NONE  0
cpu              cpu      DOUBLE >= YES NO  0     0
display_win_gui  dwg      BOOL   == YES NO  0     0
h_core           h_core   MEMORY <= YES NO  0     0
h_cpu            h_cpu    TIME   <= YES NO  0:0:0 0
h_data           h_data   MEMORY <= YES NO  0     0
h_fsize          h_fsize  MEMORY <= YES NO  0     0
h_rss            h_rss    MEMORY <= YES NO  0     0
h_rt             h_rt     TIME   <= YES NO  0:0:0 0
h_stack          h_stack  MEMORY <= YES NO  0     0
h_vmem           h_vmem   MEMORY <= YES NO  0     0
hostname         h        HOST   == YES NO  NONE  0
load_avg         la       DOUBLE >= NO  NO  0     0
load_long        ll       DOUBLE >= NO  NO  0     0
load_medium      lm       DOUBLE >= NO  NO  0     0
load_short       ls       DOUBLE >= NO  NO  0     0
m_core           core     INT    <= YES NO  0     0
m_socket         socket   INT    <= YES NO  0     0
m_thread         thread   INT    <= YES NO  0     0
m_topology       topo     STRING == YES NO  NONE  0
m_topology_inuse utopo    STRING == YES NO  NONE  0
mem_free         mf       MEMORY <= YES NO  0     0
mem_total        mt       MEMORY <= YES NO  0     0
mem_used         mu       MEMORY >= YES NO  0     0
min_cpu_interval mci      TIME   <= NO  NO  0:0:0 0
np_load_avg      nla      DOUBLE >= NO  NO  0     0
np_load_long     nll      DOUBLE >= NO  NO  0     0
np_load_medium   nlm      DOUBLE >= NO  NO  0     0
np_load_short    nls      DOUBLE >= NO  NO  0     0
num_proc         p        INT    == YES NO  0     0
qname            q        STRING == YES NO  NONE  0
rerun            re       BOOL   == NO  NO  0     0
s_core           s_core   MEMORY <= YES NO  0     0
s_cpu            s_cpu    TIME   <= YES NO  0:0:0 0
s_data           s_data   MEMORY <= YES NO  0     0
s_fsize          s_fsize  MEMORY <= YES NO  0     0
s_rss            s_rss    MEMORY <= YES NO  0     0
s_rt             s_rt     TIME   <= YES NO  0:0:0 0
s_stack          s_stack  MEMORY <= YES NO  0     0
s_vmem           s_vmem   MEMORY <= YES NO  0     0
seq_no           seq      INT    == NO  NO  0     0
slots            s        INT    <= YES YES 1     1000
swap_free        sf       MEMORY <= YES NO  0     0
swap_rate        sr       MEMORY >= YES NO  0     0
swap_rsvd        srsv     MEMORY >= YES NO  0     0
swap_total       st       MEMORY <= YES NO  0     0
swap_used        su       MEMORY >= YES NO  0     0
tmpdir           tmp      STRING == NO  NO  NONE  0
virtual_free     vf       MEMORY <= YES NO  0     0
virtual_total    vt       MEMORY <= YES NO  0     0
virtual_used     vu       MEMORY >= YES NO  0     0
`

// Attribute returns the attribute with a name or shortcut, nil if there is none.
func (c *Config) Attribute(nameOrShortcut string) *Attribute {
	for i := range c.Complex {
		if c.Complex[i].Name == nameOrShortcut {
			return &c.Complex[i]
		}
	}
	for i := range c.Complex {
		if c.Complex[i].Shortcut == nameOrShortcut {
			return &c.Complex[i]
		}
	}
	return nil
}

// maxLike bounds the attributes that are suggested for a word.
const maxLike = 5

// LikeAttribute returns a line, behind a newline, that names the attributes a word may
// mean: those whose names contain it, or the nearest one. It returns "" if there is
// none.
func (c *Config) LikeAttribute(word string) string {
	var all, like []string
	for i := range c.Complex {
		a := &c.Complex[i]
		if a.Requestable == RequestableNo {
			continue
		}
		all = append(all, a.Name)
		if len(word) > 2 && strings.Contains(a.Name, strings.ToLower(word)) {
			like = append(like, a.Name)
		}
	}
	like = like[:min(len(like), maxLike)]
	if near := spell.Nearest(all, word, len(word)/3+1); len(like) == 0 && near != "" {
		like = []string{near}
	}
	if len(like) == 0 {
		return ""
	}
	return "\nDid you mean " + strings.Join(like, ", ") + "?"
}

// defaultComplex returns the attributes that exist without any file.
func defaultComplex() []Attribute { return slices.Clone(standardAttributes()) }

// standardAttributes reads them once for all loads.
var standardAttributes = sync.OnceValue(func() []Attribute {
	var attributes []Attribute
	for line := range strings.Lines(strings.TrimSpace(standardComplex)) {
		a, err := parseAttribute(strings.TrimSpace(line))
		if err != nil {
			panic(err)
		}
		attributes = append(attributes, a)
	}
	return attributes
})

// parseAttribute reads a line of the file complexes.
func parseAttribute(line string) (Attribute, error) {
	columns := strings.Fields(line)
	if len(columns) != 8 {
		return Attribute{}, fmt.Errorf("%d columns; want name, shortcut, type, relop, requestable, consumable, default and urgency", len(columns))
	}
	a := Attribute{
		Name: columns[0], Shortcut: columns[1], Kind: Kind(strings.ToUpper(columns[2])), Relop: columns[3],
		Requestable: Requestable(strings.ToUpper(columns[4])), Consumable: Consumable(strings.ToUpper(columns[5])), Default: columns[6],
	}
	// qconf -Mc understands short forms.
	switch a.Requestable {
	case "Y":
		a.Requestable = RequestableYes
	case "N":
		a.Requestable = RequestableNo
	case "F":
		a.Requestable = RequestableForced
	}
	switch a.Consumable {
	case "Y":
		a.Consumable = ConsumableYes
	case "N":
		a.Consumable = ConsumableNo
	case "J":
		a.Consumable = ConsumableJob
	}
	var err error
	if a.Urgency, err = strconv.ParseFloat(columns[7], 64); err != nil {
		return a, fmt.Errorf("urgency: %q is not a number", columns[7])
	}
	return a, a.check()
}

// kinds are the types of attributes.
var kinds = []string{"INT", "DOUBLE", "TIME", "MEMORY", "BOOL", "STRING", "CSTRING", "RESTRING", "HOST", "RSMAP"}

// check returns what is wrong with the columns of an attribute, in the words of qconf
// -Mc if it has some.
func (a *Attribute) check() error {
	for _, name := range []string{a.Name, a.Shortcut} {
		if err := checkName("name of an attribute", name); err != nil {
			return err
		}
		if strings.ContainsAny(name, "=<>!+") {
			return fmt.Errorf("%q is not a name of an attribute", name)
		}
	}
	if !slices.Contains(kinds, string(a.Kind)) {
		return fmt.Errorf("unknown complex attribute type %q%s", a.Kind, suggest(kinds, string(a.Kind), ""))
	}
	consumable := a.Consumable != ConsumableNo
	switch {
	case !slices.Contains([]string{"==", "!=", ">=", ">", "<=", "<", "EXCL"}, a.Relop):
		return fmt.Errorf("relop: %q is none of ==, !=, >=, >, <=, < and EXCL", a.Relop)
	case !slices.Contains([]Requestable{RequestableYes, RequestableNo, RequestableForced}, a.Requestable):
		return fmt.Errorf("requestable: %q is none of YES, NO and FORCED", a.Requestable)
	case !slices.Contains([]Consumable{ConsumableYes, ConsumableNo, ConsumableJob}, a.Consumable):
		return fmt.Errorf("consumable: %q is none of YES, NO and JOB", a.Consumable)
	case consumable && !a.Kind.Number():
		return inWords("Complex %q of type %q cannot be a consumable", a.Name, a.Kind)
	case a.Relop == "EXCL" && a.Kind != KindBool:
		return inWords("Complex %q must be BOOL to use EXCL as relational operator", a.Name)
	case a.Relop == "EXCL" && !consumable:
		return inWords("Exclusive complex %q must be a consumable", a.Name)
	case a.Relop != "EXCL" && a.Kind == KindBool && consumable:
		return inWords("Exclusive complex %q must have EXCL as relational operator", a.Name)
	case a.Relop != "EXCL" && a.Relop != "<=" && consumable:
		return inWords("Consumable %q can have only <= as an relational operator", a.Name)
	case a.Relop != "EXCL" && a.Relop != "==" && a.Relop != "!=" && (!a.Kind.Number() || a.Kind == KindBool):
		return inWords("Complex %q has an invalid relational operator", a.Name)
	case a.Kind == KindRSMap && !consumable:
		return errors.New("a RSMAP must be a consumable")
	}
	if isNone(a.Default) {
		if !a.Kind.Number() {
			return nil
		}
		a.Default = "0"
	}
	v, err := ParseValue(a.Kind, a.Default)
	switch {
	case err != nil:
		return fmt.Errorf("default: %w", err)
	case v.IDs != nil:
		return fmt.Errorf("default: %q names units", a.Default)
	case !consumable && (v.Number != 0 || !a.Kind.Number()):
		return inWords("Complex %q cannot have a (non-zero) default value", a.Name)
	case a.Requestable == RequestableForced && v.Number != 0:
		return inWords("Consumable %q cannot have a (non-zero) default value because it is forced.", a.Name)
	}
	return nil
}

// complexes reads the file complexes over the default complex.
func (l *loader) complexes(path string, data []byte) {
	entries, err := parse(path, data)
	if err != nil {
		l.cannot(path, err)
		return
	}
	seen := map[string]int{}
	for _, e := range entries {
		a, err := parseAttribute(e.name + " " + e.value)
		if err != nil {
			l.mistake(path, e.line, "", err)
			continue
		}
		if first, dup := seen[a.Name]; dup {
			l.problem(path, e.line, "%s is already set in line %d", a.Name, first)
			continue
		}
		seen[a.Name] = e.line
		if old := slices.IndexFunc(l.conf.Complex, func(b Attribute) bool { return b.Name == a.Name }); old >= 0 {
			if l.conf.Complex[old].Kind != a.Kind {
				l.problem(path, e.line, "%s: the type cannot be changed, it is %s", a.Name, l.conf.Complex[old].Kind)
			}
			l.conf.Complex[old] = a
			continue
		}
		l.conf.Complex = append(l.conf.Complex, a)
	}
	owner := map[string]string{}
	for _, a := range l.conf.Complex {
		for _, name := range slices.Compact([]string{a.Name, a.Shortcut}) {
			if other, taken := owner[name]; taken {
				l.mistake(path, max(seen[a.Name], seen[other]), "", inWords("complex with name %s or shortcut %s already exists", a.Name, a.Shortcut))
				break
			}
			owner[name] = a.Name
		}
	}
	slices.SortFunc(l.conf.Complex, func(a, b Attribute) int { return cmp.Compare(a.Name, b.Name) })
}
