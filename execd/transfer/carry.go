package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/sandbox/order"
	"paddock/execd/internal/sandbox/pack"
	"paddock/execd/internal/sandbox/ring"
)

// emit writes what Bring or Send names to the stream.
func (w *worker) emit() error {
	have, err := pack.ParseHave(w.orders.Pack.Have)
	if err != nil {
		return never(unix.EINVAL, "%v", err)
	}
	w.zips = w.orders.Pack.Zstd
	content := w.packInput
	if w.orders.Send != nil {
		if w.staged, err = openTable(order.Say); err != nil {
			return fail("read", order.FileInputs, err)
		}
		defer w.staged.close()
		content = w.packOutput
	}
	out, err := ring.OpenWriter(order.Memory, order.Stream)
	if err != nil {
		return err
	}
	p, err := w.packAll(out, have, content)
	if err != nil {
		return err
	}
	w.bytes.Store(int64(p.out.Bytes()))
	w.result.Root = p.root.String()
	return nil
}

// packInput writes what the user has named, each by its place in the sandbox.
func (w *worker) packInput(p *packing) error {
	var list []placed
	for _, n := range w.orders.Bring {
		if order.Scheme(n.From) != "" {
			return never(unix.EINVAL, "%q is no path", n.From)
		}
		s, _, err := w.input(n)
		if err != nil {
			return err
		}
		list = append(list, placed{n.Place(), s})
	}
	return p.items(list)
}

// packOutput writes what the job has left, each by its name in the sandbox.
func (w *worker) packOutput(p *packing) error {
	of := w.orders.Pack
	streams := []string{of.Out, of.Err}
	for i, name := range []string{order.FileStdout, order.FileStderr} {
		s := source{dir: order.Say, name: name, path: name}
		st, err := s.look()
		switch {
		case streams[i] == "" || errors.Is(err, unix.ENOENT):
		case err != nil:
			return fail("look at", name, err)
		case kind(&st) == unix.S_IFREG:
			if err := p.file(s, streams[i], &st); err != nil {
				return err
			}
		}
	}
	p.hidden = func(name string) bool { return isPart(name) || slices.Contains(streams, name) }
	if w.orders.Send.Select == order.Listed {
		return p.listed()
	}
	p.staged, p.wanted = w.staged, nil
	if w.orders.Send.Select == order.Changed {
		p.wanted = w.changed
	}
	fd, err := openDir(order.Files, ".", true)
	if err != nil {
		return fail("open", "the sandbox", err)
	}
	return p.tree(fd, "the sandbox")
}

// listed writes what is listed, which has to be there. Who lists a link means what it leads
// to.
func (p *packing) listed() error {
	var list []placed
	for _, n := range p.orders.Send.Names {
		name := strings.TrimSuffix(n.From, "/")
		if !strings.Contains(name, "/") && p.hidden(name) {
			continue
		}
		s := source{path: "/proc/self/fd/" + itoa(order.Files) + "/" + name, follow: true}
		if _, err := s.look(); errors.Is(err, unix.ENOENT) {
			return never(unix.ENOENT, "output %s is missing", quote(name))
		}
		list = append(list, placed{name, s})
	}
	return p.items(list)
}

// changed reports what Changed selects: what is at the top and no directory, and what is
// listed.
func (w *worker) changed(path string, st *unix.Stat_t) (is, leads bool) {
	isDir := kind(st) == unix.S_IFDIR
	for _, n := range w.orders.Send.Names {
		name := strings.TrimSuffix(n.From, "/")
		is = is || within(path, name)
		leads = leads || isDir && within(name, path)
	}
	return is || !isDir && !strings.Contains(path, "/"), leads
}

// within reports whether a path is another, or below it.
func within(path, of string) bool {
	rest, ok := strings.CutPrefix(path, of)
	return ok && (rest == "" || rest[0] == '/')
}

// placed is something with a place of its own in the tree that is written.
type placed struct {
	to string
	source
}

// items writes files and directories with the directories that they are in, which come once
// each. What is in a directory that is written as a whole is not written again.
func (p *packing) items(list []placed) error {
	parts := func(it *placed) []string { return strings.Split(it.to, "/") }
	slices.SortFunc(list, func(a, b placed) int { return slices.Compare(parts(&a), parts(&b)) })
	var in []string // where the stream is
	var metas []pack.Meta
	leave := func(depth int) error {
		for n := len(in) - 1; n >= depth; n-- {
			if err := p.up(metas[n]); err != nil {
				return err
			}
			in, metas = in[:n], metas[:n]
		}
		return nil
	}
	hidden := p.hidden
	p.hidden, p.wanted, p.staged = nil, nil, nil
	defer func() { p.hidden = hidden }()
	last, whole := "", false
	for i := range list {
		it := &list[i]
		if i > 0 && within(it.to, last) {
			if !whole && it.to != last {
				return never(unix.ENOTDIR, "%s is no directory, and cannot have %s in it", quote(last), quote(it.to))
			}
			continue
		}
		st, err := it.look()
		if err != nil {
			return fail("look at", it.path, err)
		}
		way := parts(it)
		way, name := way[:len(way)-1], way[len(way)-1]
		same := 0
		for same < min(len(in), len(way)) && in[same] == way[same] {
			same++
		}
		if err := leave(same); err != nil {
			return err
		}
		for _, dir := range way[same:] {
			m := metaOf(&st)
			m.Mode = 0o755
			if err := p.dir(dir); err != nil {
				return err
			}
			in, metas = append(in, dir), append(metas, m)
		}
		last, whole = it.to, kind(&st) == unix.S_IFDIR
		if !whole {
			err = p.leaf(it.source, name, &st)
		} else {
			err = p.whole(it, name, &st)
		}
		if err != nil {
			return err
		}
	}
	return leave(0)
}

// whole writes a directory under a name.
func (p *packing) whole(it *placed, name string, st *unix.Stat_t) error {
	if err := p.dir(name); err != nil {
		return err
	}
	fd, err := p.openTree(it.source)
	if err != nil {
		return fail("open", it.path, err)
	}
	if err := p.tree(fd, it.path); err != nil {
		return err
	}
	return p.up(metaOf(st))
}

// receive puts a tree from the stream into the sandbox.
func (w *worker) receive() error {
	o := w.orders.Unpack
	file := order.FileReceived + o.Part
	u, err := w.openUnpack("/proc/self/fd/" + itoa(order.Files))
	if err != nil {
		return err
	}
	var before order.Result
	if json.Unmarshal([]byte(readSmall(order.Say, file)), &before) == nil && before.ID == w.orders.ID && before.Root != "" {
		w.result = before
		w.bytes.Store(max(before.Bytes, 0))
		w.files.Store(int64(max(before.Files, 0)))
		return u.removeParts()
	}
	u.arrived = func() error {
		if o.Note {
			if err := w.note(); err != nil {
				return err
			}
		}
		root := u.had.Root
		if u.in != nil && !u.committed {
			root = u.in.Have().Root
		}
		w.result.Root = root.String()
		text, err := json.Marshal(w.done())
		if err == nil {
			err = writeSmall(order.Say, file, string(text), true)
		}
		return fail("write", file, err)
	}
	switch {
	case u.committed: // then there is nothing to be read
		return u.arrive()
	case o.Look:
		if u.had != (pack.Have{}) {
			w.result.Have = u.had.String()
		}
		return nil
	}
	u.maxBytes, u.maxItems = uint64(w.orders.Max), uint64(w.orders.Items)
	if !w.orders.Turn && (u.maxBytes == 0 || u.maxBytes > order.Brief) {
		u.maxBytes = u.had.Bytes + u.had.Data + order.Brief
	}
	in, err := ring.OpenReader(order.Memory, order.Stream)
	if err != nil {
		return err
	}
	_, err = u.run(in)
	if f, ok := errors.AsType[*failure](err); ok && f.errno == unix.EFBIG {
		var limits []string
		if u.maxBytes > 0 {
			limits = append(limits, itoa(int(u.maxBytes))+" bytes")
		}
		if u.maxItems > 0 {
			limits = append(limits, itoa(int(u.maxItems))+" items")
		}
		return never(unix.EFBIG, "there is more to copy than may be: at most %s", strings.Join(limits, " and "))
	}
	return err
}
