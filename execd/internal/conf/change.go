package conf

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"paddock/execd/api"
	"paddock/spool/atomicfile"
)

// maxObjectName bounds the names of objects that Change makes, since the file system
// must take the name of the temporary file as well.
const maxObjectName = 200

// about has Grid Engine's words for a kind of objects.
type about struct {
	object string // cluster queue
	list   string // cluster queue list
	gone   string // the object when it is removed, if that is another word
	from   string // the list it is removed from, if that is another
}

var speech = map[string]about{
	kindQueue:         {object: "cluster queue", list: "cluster queue list"},
	kindPE:            {object: "parallel environment", list: "parallel environment list"},
	kindCkpt:          {object: "checkpoint interface", list: "checkpoint interface list", gone: "checkpointing environment", from: "checkpointing environment list"},
	kindUserList:      {object: "userset", list: "userset list"},
	kindHostGroup:     {object: "host group", list: "host group list", from: "host group entry list"},
	kindHost:          {object: "exechost", list: "exechost list", gone: "execution host", from: "execution host list"},
	kindProject:       {object: "project", list: "project list"},
	kindConf:          {object: "configuration", list: "configuration list"},
	kindSched:         {object: "scheduler configuration"},
	kindComplex:       {object: "complex", list: "complex entry list", from: "complex list"},
	api.KindAttribute: {object: "complex", list: "complex entry list", from: "complex list"},
	kindManager:       {object: "manager", list: "manager list"},
	kindOperator:      {object: "operator", list: "operator list"},
}

// Saved returns the configuration as the files are now, which may not be in force yet.
// The error is that of Load.
func (l *Live) Saved() (*Config, error) {
	l.reading.Lock()
	defer l.reading.Unlock()
	return Load(l.options)
}

// Change changes one object on behalf of user@host, in the files and in force. It
// changes nothing unless the whole configuration is valid with the change. It keeps the
// comments in the files. The error is an *api.Error if the request is at fault.
func (l *Live) Change(req *api.ConfigureRequest, by string) (api.ConfigureReply, error) {
	l.reading.Lock()
	defer l.reading.Unlock()
	// The files are read anew: they may have been edited a moment ago.
	old, broken := loadAll(l.options)
	if len(broken) > 0 {
		reply := api.ConfigureReply{Problems: problems(broken, "")}
		reply.Lines = []api.Line{{Text: "cannot change the configuration: its files have mistakes", Failed: true}}
		return reply, nil
	}
	e := &edit{ConfigureRequest: req, by: by, options: l.options, old: old}
	if err := e.plan(); err != nil || len(e.reply.Problems) > 0 {
		return e.reply, err
	}
	e.settle()
	now := old
	if len(e.files) > 0 {
		var mistakes []*Problem
		if now, mistakes = loadAll(e.with()); len(mistakes) > 0 {
			e.reply.Problems, e.reply.Lines = problems(mistakes, e.textIs), nil
			return e.reply, nil
		}
		if err := e.check(now); err != nil {
			return api.ConfigureReply{}, err
		}
	}
	if e.Dry {
		e.reply.Changed = changes(old, now)
		return e.reply, nil
	}
	for i := range e.files {
		if err := e.write(&e.files[i]); err != nil {
			return api.ConfigureReply{}, err
		}
	}
	if again, wrong := loadAll(l.options); len(wrong) == 0 {
		now = again // it has what it was read from
	}
	e.reply.Changed = changes(l.Current(), now)
	l.current.Store(now)
	l.mistakes.Store(&[]*Problem{})
	return e.reply, nil
}

// problems returns the mistakes for the reply; those in the file text are those of the
// text that was sent.
func problems(mistakes []*Problem, text string) []api.Problem {
	list := make([]api.Problem, len(mistakes))
	for i, p := range mistakes {
		list[i] = api.Problem{File: p.File, Line: p.Line, Text: p.Text}
		if p.File == text {
			list[i].File = ""
		}
		if p.words != "" && p.File == text {
			list[i].Text, list[i].Words = p.words, true
		}
	}
	return list
}

// edit is one Change.
type edit struct {
	*api.ConfigureRequest
	by      string // user@host
	options Options
	old     *Config
	files   []file // in the order of writing
	textIs  string // path of the file that gets the lines of the text
	reply   api.ConfigureReply
}

// file is a file to be changed.
type file struct {
	path string
	was  []byte // nil: the file does not exist
	is   []byte // nil: the file is removed
}

// with returns options by which the files are read as changed.
func (e *edit) with() Options {
	o := e.options
	o.instead, o.closely = with(with(nil, e.old.builtin), e.files), e.textIs
	return o
}

// settle writes files for objects that exist without one, as soon as another object
// gets a file or changes: a new file must neither remove nor change what existed
// before.
func (e *edit) settle() {
	beside := func(f file) bool {
		return slices.ContainsFunc([]string{kindQueue, kindPE}, func(kind string) bool { return filepath.Dir(f.path) == e.path(kind, "") })
	}
	if !slices.ContainsFunc(e.files, beside) {
		return
	}
	// The order keeps the meaning of the files after each of them.
	files := slices.Clone(e.old.builtin)
	for _, f := range e.files {
		if i := slices.IndexFunc(files, func(b file) bool { return b.path == f.path }); i >= 0 {
			files[i] = f
		} else {
			files = append(files, f)
		}
	}
	e.files = files
}

// undone are the verbs of a reply that says what was not done yet.
var undone = map[string]string{
	"added": "would add", "modified": "would modify", "removed": "would remove", "deleted": "would delete", "changed": "would change",
}

// done adds a line about a change: verb and object.
func (e *edit) done(verb, format string, args ...any) {
	e.tell("%s %s %s", e.by, e.verb(verb), fmt.Sprintf(format, args...))
}

// tell adds a line to the reply.
func (e *edit) tell(format string, args ...any) {
	e.reply.Lines = append(e.reply.Lines, api.Line{Text: fmt.Sprintf(format, args...)})
}

func (e *edit) verb(done string) string {
	if e.Dry {
		return undone[done]
	}
	return done
}

// fails adds a line about a change that failed.
func (e *edit) fails(format string, args ...any) {
	e.reply.Lines = append(e.reply.Lines, api.Line{Text: fmt.Sprintf(format, args...), Failed: true})
}

// rejected returns an error in Grid Engine's words.
func rejected(format string, args ...any) error { return api.Errorf(api.CodeRejected, format, args...) }

// plan finds the changes of the files.
func (e *edit) plan() error {
	if len(e.Text) > api.MaxConfiguration {
		return rejected("%d bytes are too many for a configuration file", len(e.Text))
	}
	if speech[e.Kind].object == "" {
		return rejected("%q is no kind of configuration", e.Kind)
	}
	switch {
	case e.Action == api.ConfigureAdmit || e.Action == api.ConfigureExpel:
		return e.members()
	case e.Kind == kindManager || e.Kind == kindOperator:
		return e.staff()
	case e.Kind == kindComplex || e.Kind == api.KindAttribute:
		return e.complex()
	}
	switch e.Action {
	case api.ConfigureAdd:
		return e.add()
	case api.ConfigureModify:
		return e.modify()
	case api.ConfigureRemove:
		return e.remove()
	case api.ConfigureInsert, api.ConfigureChange, api.ConfigureDelete, api.ConfigureReplace:
		return e.elements()
	case api.ConfigurePurge:
		return e.purge()
	}
	return rejected("%q is nothing to do with a configuration", e.Action)
}

// put plans a file.
func (e *edit) put(path string, is []byte) error {
	was, err := e.read(path)
	if err != nil {
		return err
	}
	if is == nil || !bytes.Equal(was, is) || was == nil {
		e.files = append(e.files, file{path, was, is})
	}
	return nil
}

// base returns what a file has before a change or, of an object without a file, what
// that is made of; nil if there is neither.
func (e *edit) base(path string) ([]byte, error) {
	data, err := e.read(path)
	if data == nil && err == nil {
		data = with(nil, e.old.builtin)[path]
	}
	return data, err
}

// read returns the contents of a file, nil if it does not exist.
func (e *edit) read(path string) ([]byte, error) {
	data, err := newLoader(e.options).readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && data == nil {
		data = []byte{}
	}
	return data, err
}

func (e *edit) path(kind, name string) string {
	return filepath.Join(e.options.Dir, places[kind], name)
}

// write writes or removes a file, and syncs the change.
func (e *edit) write(f *file) error {
	path, what := f.path, "cannot change "+f.path
	// An editor may have saved while the change was checked.
	switch now, err := e.read(path); {
	case err != nil:
		return fmt.Errorf("%s: %v", what, err)
	case (now == nil) != (f.was == nil) || !bytes.Equal(now, f.was):
		return rejected("%s: it has been changed by somebody else a moment ago", what)
	}
	// A link is not replaced: the file may be elsewhere for a reason.
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSymlink {
		return rejected("%s: it is a symbolic link: edit what it leads to", what)
	}
	if f.is == nil {
		if err := atomicfile.Remove(path); err != nil {
			return err
		}
		return atomicfile.SyncDir(filepath.Dir(path))
	}
	if err := mkdir(filepath.Dir(path), e.options.Dir); err != nil {
		return err
	}
	return atomicfile.WriteDurable(path, f.is, 0o644)
}

// mkdir makes a directory and those above it, as needed. Those above the configuration,
// as ~/.config, are private to their owner.
func mkdir(dir, configuration string) error {
	if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
		return nil // other mistakes are reported when it is used
	}
	if err := mkdir(filepath.Dir(dir), configuration); err != nil {
		return err
	}
	mode := fs.FileMode(0o755)
	if !strings.HasPrefix(dir, configuration) {
		mode = 0o700
	}
	if err := atomicfile.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(dir))
}
