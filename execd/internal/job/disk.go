package job

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"sync"

	"paddock/execd/internal/aside"
	"paddock/execd/internal/user"
	"paddock/spool"
	"paddock/spool/atomicfile"
)

// disk has the files of jobs in the spool: their records and scripts, and the file of the
// last number. It knows nothing of the jobs in memory.
type disk struct {
	root  *spool.Root
	log   *slog.Logger
	chown bool // scripts belong to the owners of the jobs (root mode)
	group atomicfile.Group
	// shared has the log told once of what is not kept from growing.
	shared sync.Once

	sequence sync.Mutex // held while the file of the last number is written
}

// path returns the path of a record.
func (d *disk) path(number int) string {
	return d.root.Path(spool.DirJobs, strconv.Itoa(number))
}

// readRecord reads the record of a job that is over or not.
func (d *disk) readRecord(number int) ([]byte, error) {
	data, err := os.ReadFile(d.path(number))
	if errors.Is(err, fs.ErrNotExist) {
		data, err = os.ReadFile(d.root.Path(spool.DirEnded, recordName(number)))
	}
	return data, err
}

// readRequest reads the header of a record as it is after all alterations. Of a
// job without any the first line is enough.
func (d *disk) readRequest(number int, altered bool) (*header, error) {
	if altered {
		data, err := d.readRecord(number)
		if err != nil {
			return nil, err
		}
		return present(data)
	}
	data, err := readHeader(d.path(number))
	if errors.Is(err, fs.ErrNotExist) {
		data, err = readHeader(d.root.Path(spool.DirEnded, recordName(number)))
	}
	if err != nil {
		return nil, err
	}
	return decodeHeader(data)
}

// readHeader reads the first line of a record.
func readHeader(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	line, err := bufio.NewReaderSize(f, 16<<10).ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return bytes.TrimSuffix(line, []byte("\n")), err
}

func (d *disk) setAside(file string, cause error) {
	_ = aside.Put(d.root, d.log, file, fmt.Errorf("cannot read it: %w", cause)) // it was told
}

// writeNew writes script and record of a new job. The rename of the record is
// the moment of acceptance: what a crash leaves before it is swept away at the
// next start.
func (d *disk) writeNew(h *header, script []byte, owner *user.User) error {
	name := strconv.Itoa(h.Job)
	head, err := encode(h)
	if err != nil {
		return err
	}
	record := d.root.Path(spool.DirJobs, name)
	fresh := d.root.Path(spool.DirJobs, ".new-"+name)
	var wg sync.WaitGroup
	var scriptErr, recordErr error
	if !h.Request.Binary {
		wg.Go(func() { scriptErr = d.writeScript(name, script, owner) })
	}
	wg.Go(func() { recordErr = d.writeSynced(fresh, head, 0o600, nil) })
	wg.Wait()
	err = errors.Join(scriptErr, recordErr)
	if err == nil {
		err = atomicfile.Rename(fresh, record)
	}
	if err == nil {
		err = d.group.SyncDir(d.root.Path(spool.DirJobs))
	}
	if err != nil {
		err = fmt.Errorf("cannot store job %d: %w", h.Job, err)
		for _, left := range []string{fresh, record, d.root.Path(spool.DirScripts, name)} {
			if rerr := atomicfile.Remove(left); rerr != nil {
				d.log.Warn(rerr.Error())
			}
		}
	}
	return err
}

// ScriptMode is the mode of a job's script, which its owner reads and executes.
const ScriptMode fs.FileMode = 0o500

// writeScript writes a job's script, which its owner alone may read (Grid
// Engine shows it to all).
func (d *disk) writeScript(name string, script []byte, owner *user.User) error {
	lend := func(f *os.File) error {
		if !d.chown {
			return nil
		}
		ours, err := Lend(f, owner.UID, owner.GID, owner.Name, owner.Group, ScriptMode)
		if err == nil && !ours {
			d.shared.Do(func() {
				d.log.Warn("scripts of users who share a group are their own, and may grow: the file system of the spool has no access control lists")
			})
		}
		return err
	}
	if err := d.writeSynced(d.root.Path(spool.DirScripts, name), script, ScriptMode, lend); err != nil {
		return err
	}
	return d.group.SyncDir(d.root.Path(spool.DirScripts))
}

// writeSynced makes a new file whose content is on disk, sharing the sync with
// all who write at the same time.
func (d *disk) writeSynced(file string, data []byte, perm fs.FileMode, lend func(*os.File) error) error {
	f, err := atomicfile.Create(file, perm)
	if err != nil {
		return err
	}
	err = atomicfile.AppendTo(f, data)
	if err == nil && lend != nil {
		err = lend(f)
	}
	if err == nil {
		err = d.group.Sync(f)
	}
	return errors.Join(err, f.Close())
}

// script returns the path of a job's script in the spool.
func (d *disk) script(number int) string { return d.root.Path(spool.DirScripts, strconv.Itoa(number)) }

// Script returns the path of a job's script in the spool; empty: it has none. It is an
// error that it is not there.
func (d *disk) Script(j *Job) (string, error) {
	if !j.HasScript {
		return "", nil
	}
	path := d.script(j.Number)
	if _, err := os.Lstat(path); err != nil {
		return "", fmt.Errorf("the job's script %s is gone", path)
	}
	return path, nil
}

// OpenScript opens the script of a job that is over or not.
func (d *disk) OpenScript(j *Job) (io.ReadCloser, error) {
	f, err := os.Open(d.script(j.Number))
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.Open(d.root.Path(spool.DirEnded, scriptName(j.Number)))
	}
	return f, err
}

// discard removes files of a job, those of them that there are.
func (d *disk) discard(number int, paths ...string) {
	for _, path := range paths {
		if err := atomicfile.Remove(path); err != nil {
			d.log.Warn(fmt.Sprintf("job %d: %v", number, err))
		}
	}
}

// sweep removes scripts that belong to none of the jobs: left by a crash between script
// and record.
func (d *disk) sweep(jobs map[int]*Job) error {
	names, err := d.root.ListScripts()
	if err != nil {
		return err
	}
	for _, name := range names {
		if number, err := strconv.Atoi(name); err == nil && jobs[number] == nil {
			d.discard(number, d.script(number))
		}
	}
	return nil
}

// keepSequence has the highest number given out known without the record of its job.
func (d *disk) keepSequence(last int) error {
	// A slower caller must not write a lower number over it.
	d.sequence.Lock()
	defer d.sequence.Unlock()
	known, err := readSeqNum(d.root)
	if spool.Unread(err) {
		return err // it may be higher
	}
	if err == nil && known >= last {
		return nil
	}
	// A file that replaces another has its contents when the power comes
	// back (ext4, XFS, Btrfs); the first one may be empty.
	write := atomicfile.Write
	if err != nil || known == 0 {
		write = atomicfile.WriteDurable
	}
	return write(d.root.Path(spool.FileSeqNum), spool.AppendNumber(nil, last), 0o644)
}

// readSeqNum returns the highest job number given out before.
func readSeqNum(root *spool.Root) (int, error) {
	path := root.Path(spool.FileSeqNum)
	if err := atomicfile.Reading(path); err != nil {
		return 0, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return spool.ParseNumber(data)
}
