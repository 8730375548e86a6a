package schedule

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"paddock/execd/api"
	"paddock/execd/internal/conf"
)

// slots is the attribute that every job consumes.
const slots = "slots"

// host is what a configuration gives out.
type host struct {
	conf       *conf.Config
	attributes map[string]*conf.Attribute
	queues     []*queue // by seq_no, then name
	byName     map[string]*queue
	formula    []term
	lists      map[string][]int // of user lists, by entry
	listIndex  map[string]int

	accounts  []account
	consumed  map[consumer]int // accounts of consumables
	slots     int              // account of all slots in use; its limit may be infinite
	exclusive []int            // accounts of exclusive attributes of the host
	pes       map[string]int   // accounts of the slots of PEs
	forced    []*conf.Attribute
	defaults  []request // of consumables, for jobs that do not request them
}

// queue is a queue with its accounts.
type queue struct {
	*conf.Queue
	index     int
	instance  string // all.q@host
	slots     int    // account
	exclusive []int  // accounts of exclusive attributes
	superiors []superior

	closed  string // why it is closed
	alarm   *violation
	alarmOf int // books.changes when alarm was worked out
}

// superior is a queue that suspends another one.
type superior struct {
	*queue
	threshold int // of its slots in use
}

// account is a limited amount of something. What is used of it stands in a ledger at
// the same index.
type account struct {
	attribute *conf.Attribute // nil: slots
	queue     *queue          // nil: the host's
	level     byte            // q, h or g: where the limit comes from
	limit     float64
	ids       []string // of a RSMAP
}

// consumer names an account by attribute and queue; the accounts of the host have no
// queue.
type consumer struct{ attribute, queue string }

// use is an amount of an account.
type use struct {
	account int
	amount  float64
}

// request is an element of -l, or the default of a consumable.
type request struct {
	*conf.Attribute
	value conf.Value
}

func newHost(c *conf.Config) *host {
	h := &host{
		conf: c, attributes: map[string]*conf.Attribute{}, byName: map[string]*queue{},
		lists: map[string][]int{}, listIndex: map[string]int{},
		consumed: map[consumer]int{}, pes: map[string]int{},
	}
	h.slots = h.open(account{limit: math.Inf(1)})
	for i := range c.Complex {
		a := &c.Complex[i]
		h.attributes[a.Name] = a
		if a.Requestable == conf.RequestableForced {
			h.forced = append(h.forced, a)
		}
		if v, err := conf.ParseValue(a.Kind, a.Default); err == nil && consumable(a) && v.Number > 0 && a.Name != slots {
			h.defaults = append(h.defaults, request{a, v})
		}
	}
	for i := range c.Queues {
		q := &queue{Queue: &c.Queues[i], index: i, instance: c.Queues[i].Name + "@" + c.Hostname}
		q.slots = h.open(account{queue: q, level: 'q', limit: float64(q.Slots)})
		h.queues = append(h.queues, q)
		h.byName[q.Name] = q
		h.openAll(q, 'q', q.Complex, &q.exclusive)
	}
	h.openAll(nil, 'h', c.Host, &h.exclusive)
	h.openAll(nil, 'g', c.AnyHost, &h.exclusive)
	for _, q := range h.queues {
		for _, s := range q.Subordinates {
			below := h.byName[s.Queue]
			if below == nil || below == q {
				continue
			}
			n := s.Slots
			if n == 0 {
				n = q.Slots
			}
			if n == 0 {
				continue
			}
			below.superiors = append(below.superiors, superior{q, n})
		}
	}
	for _, name := range sorted(c.PEs) {
		h.pes[name] = h.open(account{level: 'g', limit: float64(c.PEs[name].Slots)})
	}
	h.formula = parseFormula(c.Scheduling.LoadFormula)
	for i, l := range sorted(c.UserLists) {
		h.listIndex[l] = i
		if !c.UserLists[l].ACL {
			continue
		}
		for _, e := range c.UserLists[l].Entries {
			h.lists[e] = append(h.lists[e], i)
		}
	}
	return h
}

func sorted[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (h *host) open(a account) int {
	h.accounts = append(h.accounts, a)
	return len(h.accounts) - 1
}

// openAll opens accounts for the consumables among the complex_values of a queue, of
// the host or of the host "global". As all jobs run on this host, these two share an
// account, with the lower limit.
func (h *host) openAll(q *queue, level byte, values conf.Values, exclusives *[]int) {
	owner := ""
	if q != nil {
		owner = q.Name
	}
	for _, name := range sorted(values) {
		v, a := values[name], h.attributes[name]
		if name == slots && q == nil {
			if s := &h.accounts[h.slots]; v.Number < s.limit {
				s.limit, s.level = v.Number, level
			}
			continue
		}
		if a == nil || !consumable(a) && !exclusive(a) || math.IsInf(v.Number, 1) || exclusive(a) && v.Number == 0 {
			continue
		}
		key := consumer{name, owner}
		i, ok := h.consumed[key]
		if !ok {
			i = h.open(account{attribute: a, queue: q, level: level, limit: v.Number, ids: v.IDs})
			h.consumed[key] = i
			if exclusive(a) {
				*exclusives = append(*exclusives, i)
			}
			continue
		}
		if s := &h.accounts[i]; v.Number < s.limit {
			s.limit, s.level = v.Number, level
		}
		if s := &h.accounts[i]; len(s.ids) == 0 {
			s.ids = v.IDs
		}
	}
}

// consumable reports whether an attribute is counted.
func consumable(a *conf.Attribute) bool {
	return (a.Consumable == conf.ConsumableYes || a.Consumable == conf.ConsumableJob) && a.Kind.Number() && !exclusive(a)
}

// exclusive reports whether an attribute is exclusive.
func exclusive(a *conf.Attribute) bool { return a.Relop == "EXCL" }

// membership encodes on which user lists a user is: a byte for each list.
func (h *host) membership(user string, groups []string) string {
	if len(h.listIndex) == 0 {
		return ""
	}
	on := []byte(strings.Repeat("0", len(h.listIndex)))
	for _, i := range h.lists[user] {
		on[i] = '1'
	}
	for _, g := range groups {
		for _, i := range h.lists["@"+g] {
			on[i] = '1'
		}
	}
	return string(on)
}

// admits reports whether a user with a membership may use something with these
// user_lists and xuser_lists.
func (h *host) admits(membership string, lists, without []string) bool {
	on := func(name string) bool {
		i, ok := h.listIndex[name]
		return ok && membership[i] == '1'
	}
	return !slices.ContainsFunc(without, on) && (len(lists) == 0 || slices.ContainsFunc(lists, on))
}

// access returns the access rules of the hosts, which hold for every queue.
func (h *host) access() []conf.Access {
	return append([]conf.Access{{Allowed: h.conf.Global.UserLists, Denied: h.conf.Global.XUserLists}}, h.conf.Access...)
}

// limitOf returns the value of an attribute that is a parameter of the queue: its name,
// a limit, a number.
func (q *queue) limitOf(a *conf.Attribute, c *conf.Config) (conf.Value, bool) {
	text := ""
	switch a.Name {
	case "qname":
		text = q.Name
	case "hostname":
		text = c.Hostname
	case "tmpdir":
		text = q.Tmpdir
	case "calendar":
		text = "NONE"
	case "seq_no":
		return conf.Value{Number: float64(q.SeqNo)}, true
	case "min_cpu_interval":
		return conf.Value{Number: q.MinCPUInterval.Seconds()}, true
	case "rerun":
		if q.Rerun {
			return conf.Value{Number: 1}, true
		}
		return conf.Value{}, true
	case "h_rt", "s_rt":
		d := q.HRT
		if a.Name == "s_rt" {
			d = q.SRT
		}
		if d == 0 {
			return conf.Value{Number: math.Inf(1)}, true
		}
		return conf.Value{Number: d.Seconds()}, true
	case "s_cpu", "h_cpu", "s_fsize", "h_fsize", "s_data", "h_data", "s_stack", "h_stack",
		"s_core", "h_core", "s_rss", "h_rss", "s_vmem", "h_vmem":
		i := slices.IndexFunc(q.Limits, func(l conf.Limit) bool { return l.Key == a.Name })
		if i < 0 {
			return conf.Value{Number: math.Inf(1)}, true
		}
		v, err := conf.ParseValue(a.Kind, q.Limits[i].Value)
		return v, err == nil
	default:
		return conf.Value{}, false
	}
	return conf.Value{Text: text}, true
}

// term is a summand of load_formula.
type term struct {
	attribute string // empty: a constant
	factor    float64
}

// parseFormula parses a load formula: {w|value[*w]}[{+|-}...]. It ignores terms that
// are malformed, since package conf has refused them.
func parseFormula(formula string) []term {
	var terms []term
	sign := 1.0
	for formula != "" {
		end := strings.IndexAny(formula, "+-")
		word, next := formula, ""
		following := 1.0
		if end >= 0 {
			word, next = formula[:end], formula[end+1:]
			if formula[end] == '-' {
				following = -1
			}
		}
		t := term{factor: sign}
		for f := range strings.SplitSeq(word, "*") {
			if n, err := strconv.ParseFloat(f, 64); err == nil {
				t.factor *= n
			} else {
				t.attribute = f
			}
		}
		if word != "" {
			terms = append(terms, t)
		}
		formula, sign = next, following
	}
	return terms
}

// offer is the value of an attribute that a queue or the host offers.
type offer struct {
	value         conf.Value
	level, source byte // as of qstat -F: q, h, g; and l, L, c, f
}

// offer returns the value of an attribute in a queue, or for nil on the host, with so
// much used: the most restrictive of all levels and sources or, for == and !=, that of
// the highest level.
func (s *books) offer(q *queue, a *conf.Attribute, used ledger) (offer, bool) {
	return s.host.offerOf(q, a, used, s.load)
}

// offerOf is offer with other load values.
func (h *host) offerOf(q *queue, a *conf.Attribute, used ledger, load map[string]conf.Value) (offer, bool) {
	best, found := offer{}, false
	add := func(v conf.Value, level, source byte) {
		better := !found
		if found && a.Kind.Number() {
			switch a.Relop {
			case "<=", "<":
				better = v.Number < best.value.Number
			case ">=", ">":
				better = v.Number > best.value.Number
			}
		}
		if better {
			best, found = offer{v, level, source}, true
		}
	}
	counted := func(account int) {
		acct := &h.accounts[account]
		add(conf.Value{Number: acct.limit - used[account]}, acct.level, 'c')
	}
	if a.Name == slots {
		if !math.IsInf(h.accounts[h.slots].limit, 1) {
			counted(h.slots)
		}
		if q != nil {
			counted(q.slots)
		}
		return best, found
	}
	fixed := func(values conf.Values, level byte, owner string) {
		v, ok := values[a.Name]
		if !ok {
			return
		}
		if i, ok := h.consumed[consumer{a.Name, owner}]; ok && consumable(a) {
			counted(i)
			return
		}
		add(v, level, 'f')
	}
	fixed(h.conf.AnyHost, 'g', "")
	fixed(h.conf.Host, 'h', "")
	if v, ok := load[a.Name]; ok {
		source := byte('l')
		if _, ok := h.conf.LoadScaling[a.Name]; ok {
			source = 'L'
		}
		add(v, 'h', source)
	}
	if q != nil {
		fixed(q.Complex, 'q', q.Name)
		if v, ok := q.limitOf(a, h.conf); ok {
			add(v, 'q', 'f')
		}
	}
	return best, found
}

// text writes a value for people.
func (o offer) text(a *conf.Attribute) string {
	if !a.Kind.Number() {
		return o.value.Text
	}
	return show(a.Kind, o.value.Number)
}

// describe names the attribute and its value as reasons do.
func (o offer) describe(a *conf.Attribute) string {
	v := o.hostValue(a)
	return v.Source + ":" + v.Name + "=" + v.Decimal(true)
}

// hostValue names the attribute and its value for qhost -F and qstat -F.
func (o offer) hostValue(a *conf.Attribute) api.HostValue {
	return api.HostValue{Source: string([]byte{o.level, o.source}), Name: a.Name, Type: string(a.Kind), Value: o.text(a)}
}

// sortQueues sorts the queues by queue_sort_method. The load formula is computed with
// the values that each queue offers; values of the host are the same for all queues.
func (s *books) sortQueues() {
	h := s.host
	s.order = append(s.order[:0], h.queues...)
	if len(h.formula) == 0 {
		return // they are sorted by seq_no
	}
	weight := s.weights[:0]
	for _, q := range h.queues {
		sum := 0.0
		for _, t := range h.formula {
			n := 1.0
			if t.attribute != "" {
				n = 0
				if a := h.attributes[t.attribute]; a != nil {
					o, _ := s.offer(q, a, s.used)
					n = o.value.Number
				}
			}
			sum += t.factor * n
		}
		weight = append(weight, sum)
	}
	s.weights = weight
	slices.SortStableFunc(s.order, func(a, b *queue) int {
		load := cmp.Compare(weight[a.index], weight[b.index])
		if h.conf.Scheduling.SortBySeqNo {
			return cmp.Or(cmp.Compare(a.SeqNo, b.SeqNo), load)
		}
		return load
	})
}

// precision is up to which difference amounts are the same: sums of fractions, such as
// ten times 0.1, are not exact.
const precision = 1e-12

// ledger is how much is used of each account.
type ledger []float64

func (l ledger) debit(uses []use) {
	for _, u := range uses {
		l[u.account] += u.amount
	}
}

func (l ledger) credit(uses []use) {
	for _, u := range uses {
		l[u.account] -= u.amount
		if math.Abs(l[u.account]) < precision*max(1, u.amount) {
			l[u.account] = 0
		}
	}
}

// room returns how many slots, at most limit, have room if each takes these uses; if
// none has, it returns the account that is short.
func (l ledger) room(h *host, each []use, limit int) (n, short int) {
	for _, u := range each {
		total := h.accounts[u.account].limit
		free := total - l[u.account] + precision*max(1, math.Abs(total))
		if free < u.amount*float64(limit) {
			limit = max(0, int(free/u.amount))
		}
		if limit == 0 {
			return 0, u.account
		}
	}
	return limit, -1
}
