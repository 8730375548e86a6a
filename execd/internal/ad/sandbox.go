package ad

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"paddock/classad"
	"paddock/execd/api"
)

// transferWords are the values of WhenToTransferOutput. The last is not HTCondor's.
var transferWords = []struct {
	word string
	when api.WhenOut
}{
	{"ON_EXIT", api.OutExit},
	{"ON_SUCCESS", api.OutSuccess},
	{"ON_EXIT_OR_EVICT", api.OutEvict},
	{"ALWAYS", api.OutAlways},
}

// sandbox adds what is said of the sandbox. A job that says nothing has no attribute of it.
func (in *JobInfo) sandbox(b *builder) {
	r := in.Request
	if r.Sandbox != api.SandboxYes {
		if r.Sandbox == api.SandboxNo {
			b.text("ShouldTransferFiles", "NO")
		}
		return
	}
	b.text("ShouldTransferFiles", "YES")
	var names, remaps []string
	for _, s := range r.StageIn {
		names = append(names, string(s.Place))
	}
	b.long("TransferInput", strings.Join(names, ","))
	names = nil
	all := len(r.StageOut) == 0
	for _, s := range r.StageOut {
		if s.Place != "" {
			remaps = append(remaps, escapeRemap(string(s.Name))+"="+escapeRemap(string(s.Place)))
		}
		names = append(names, string(s.Name))
		all = all || s.Name == api.StageAll
	}
	switch {
	case all:
		b.text("TransferOutput", api.StageAll)
	case names[0] == api.StageNone:
		b.text("TransferOutput", "")
	case !contains(names, api.StageFiles): // else it is not there
		b.long("TransferOutput", strings.Join(names, ","))
	}
	b.long("TransferOutputRemaps", strings.Join(remaps, ";"))
	b.text("OutputDestination", r.StageOutTo)
	for _, w := range transferWords {
		if w.when == r.WhenOut || r.WhenOut == api.OutDefault && w.when == api.OutExit {
			b.text("WhenToTransferOutput", w.word)
		}
	}
}

// escapeRemap protects what separates remaps.
func escapeRemap(text string) string {
	return strings.NewReplacer(`\`, `\\`, "=", `\=`, ";", `\;`).Replace(text)
}

// sandbox reads what an ad of work says of its sandbox.
func (r *reader) sandbox(req *api.SubmitRequest) {
	_, in := r.value("TransferInput")
	_, out := r.value("TransferOutput")
	_, remapped := r.value("TransferOutputRemaps")
	_, to := r.value("OutputDestination")
	switch word := r.text("ShouldTransferFiles"); strings.ToUpper(word) {
	case "YES":
	case "NO":
		req.Sandbox = api.SandboxNo
		return
	case "IF_NEEDED": // its files are on this host
		return
	case "":
		if !in && !out && !remapped && !to {
			return
		}
	default:
		r.fail("ShouldTransferFiles", fmt.Errorf("%q is none of YES, NO and IF_NEEDED", api.Short(word)))
	}
	req.Sandbox = api.SandboxYes
	if !filepath.IsAbs(r.cwd) || filepath.Clean(r.iwd) == "." {
		req.Cwd = "" // the sandbox is the scratch directory
	}
	keep := r.flag("PreserveRelativePaths")
	for _, place := range r.files("TransferInput") {
		s := api.Staged{Place: api.Text(r.literal(place))}
		if path, plain := api.PlainPlace(place); keep && plain && path == place && !filepath.IsAbs(place) && !strings.HasSuffix(place, "/") {
			s.Name = api.Text(place)
		}
		req.StageIn = append(req.StageIn, s)
	}
	r.stageOut(req, out, keep)
	req.StageOutTo = r.literal(r.text("OutputDestination"))
	if word := r.text("WhenToTransferOutput"); word != "" {
		for _, w := range transferWords {
			if strings.EqualFold(w.word, word) {
				req.WhenOut = w.when
			}
		}
		if req.WhenOut == api.OutDefault {
			r.fail("WhenToTransferOutput", fmt.Errorf("%q is none of ON_EXIT, ON_SUCCESS and ON_EXIT_OR_EVICT", api.Short(word)))
		}
	}
}

// stageOut reads what is brought out, and to where.
func (r *reader) stageOut(req *api.SubmitRequest, listed, keep bool) {
	places, order := r.remaps()
	names := r.files("TransferOutput")
	switch {
	case !listed: // HTCondor takes files alone
		names = append([]string{api.StageFiles}, order...)
	case len(names) == 0:
		names = []string{api.StageNone}
	case contains(names, api.StageAll):
		names = append([]string{api.StageAll}, order...)
	}
	for _, name := range names {
		s := api.Staged{Name: api.Text(name), Place: api.Text(r.literal(places[name]))}
		if keep && s.Place == "" && strings.Contains(name, "/") && !filepath.IsAbs(name) {
			s.Place = s.Name
		}
		req.StageOut = append(req.StageOut, s)
	}
}

// files reads a list of files.
func (r *reader) files(name string) []string {
	var list []string
	for item := range strings.SplitSeq(r.text(name), ",") {
		if item = strings.Trim(item, blanks); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// remaps reads TransferOutputRemaps, NAME=PLACE;NAME=PLACE: the places, and their names
// in order.
func (r *reader) remaps() (places map[string]string, order []string) {
	places = map[string]string{}
	var words [2]string
	at := 0
	add := func() {
		name, place := strings.Trim(words[0], blanks), strings.Trim(words[1], blanks)
		if at == 0 && name == "" {
			return
		}
		if name == "" || place == "" {
			r.fail("TransferOutputRemaps", errors.New("it is not NAME=PLACE;NAME=PLACE"))
		}
		if _, twice := places[name]; !twice {
			order = append(order, name)
		}
		places[name] = place
		words, at = [2]string{}, 0
	}
	text := r.text("TransferOutputRemaps")
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			words[at] += text[i : i+1]
		case c == '=' && at == 0:
			at = 1
		case c == ';':
			add()
		default:
			words[at] += text[i : i+1]
		}
	}
	add()
	return places, order
}

// Plugin is a program of a job's own that takes files from URLs and to them.
type Plugin struct {
	Schemes []string
	Path    string
}

// transferPlugins lists them, SCHEME[,SCHEME...]=PATH;...
const transferPlugins = "TransferPlugins"

// Plugins returns the plugins that the ad of a job names.
func Plugins(job *classad.Ad) ([]Plugin, error) {
	r := newReader(job, &RequestOptions{})
	r.of = ""
	var list []Plugin
	for item := range strings.SplitSeq(r.text(transferPlugins), ";") {
		if item = strings.Trim(item, blanks); item == "" {
			continue
		}
		schemes, path, ok := strings.Cut(item, "=")
		p := Plugin{Path: strings.Trim(path, blanks)}
		for word := range strings.SplitSeq(schemes, ",") {
			scheme := api.Scheme(strings.Trim(word, blanks) + "://")
			ok = ok && scheme != ""
			p.Schemes = append(p.Schemes, scheme)
		}
		if _, plain := api.PlainPlace(p.Path); !ok || p.Path == "" || !plain {
			r.fail(transferPlugins, fmt.Errorf("%q is not SCHEME=PATH", api.Short(item)))
			break
		}
		list = append(list, p)
	}
	return list, r.err
}
