// Command execd-transfer takes the files of a job to where it runs, and its output to
// where it belongs. Execd has the shepherd start it as the job's owner, never as root:
// whatever the user has made of his files, no more is done with them than he could do
// himself. It has no network and no keys. Its orders come on its standard input, see
// package order. As a filter it makes a tree a stream, see package pack, and a stream a
// tree, also by hand.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"paddock/execd/internal/sandbox/order"
)

// version is set by the linker.
var version = "devel"

const help = `usage: execd-transfer copy
       execd-transfer pack [-have HAVE] [-zstd] DIR
       execd-transfer unpack [-bytes N] [-items N] [-links] [-dots] [-id ID] DEST
       execd-transfer unpack -have [-id ID] DEST
       execd-transfer plugin PROGRAM
Copies files of a job into its sandbox, or its output to where it belongs, for
execd, which says on standard input what is to be done. Or writes a directory to
standard output, and makes one of what it reads there. With plugin it prints
what a file transfer plugin can, which it asks the program.

  -bytes N    take no more bytes
  -dots       in the home directory, also take names that begin with a dot
  -have HAVE  begin behind what the other end has, as unpack -have says
  -have       print what there is of a transfer that was interrupted
  -id ID      16 hex digits, for two transfers into a directory at once
  -items N    take no more files, directories and links
  -links      also take links that lead out of the directory
  -zstd       compress what becomes smaller by that
  -help       print this text
  -version    print the version
`

const (
	exitFailed = 1
	exitUsage  = 64
)

func main() {
	switch args := os.Args[1:]; {
	case len(args) == 1 && (args[0] == "-help" || args[0] == "--help" || args[0] == "-h"):
		fmt.Print(help)
	case len(args) == 1 && (args[0] == "-version" || args[0] == "--version"):
		fmt.Printf("execd-transfer (Paddock) %s\n", version)
	case len(args) == 1 && args[0] == "copy":
		os.Exit(run())
	case len(args) > 0 && args[0] == "pack":
		os.Exit(packWord(args[1:]))
	case len(args) > 0 && args[0] == "unpack":
		os.Exit(unpackWord(args[1:]))
	case len(args) == 2 && args[0] == "plugin":
		os.Exit(runPlugin(args[1]))
	default:
		os.Exit(usage("it wants a word: copy, pack, plugin or unpack"))
	}
}

func usage(text string) int {
	fmt.Fprintf(os.Stderr, "execd-transfer: %s\nTry 'execd-transfer -help'.\n", text)
	return exitUsage
}

// syncTime is how many seconds the disk may do something that nobody sees.
const syncTime = 1800

// worker carries out the orders.
type worker struct {
	orders *order.Orders
	boot   string

	bytes, total, files, beat atomic.Int64
	before                    atomic.Int64 // see order.Progress
	waits                     atomic.Int64 // see order.Line
	result                    order.Result

	self    identity // the sandbox, which is not copied into itself
	stay    bool     // sources are not left for another mount
	resumes bool     // what is there already may be what is to be copied
	syncs   bool     // each file is synced
	zips    bool     // a stream is compressed
	beside  int      // directory with that of Beside; -1: not open
	links   int      // directory of files with several names, -1: none
	noClone bool
	noRange bool
	copied  bool
	buf     []byte

	rate  atomic.Int64 // bytes that may be copied in a second; 0: any number
	debt  float64      // bytes that were copied too early
	paced time.Time

	landings []*landing
	named    map[string]bool // names of the sandbox that have a place of their own
	staged   *table
}

func (w *worker) add(n int64) {
	w.bytes.Add(n)
	w.beat.Add(1)
}

// newWorker returns one that has no orders. A process for each transfer is to be small.
func newWorker() *worker {
	debug.SetGCPercent(25)
	// With one, the runtime takes the processor away from each system call that is not over at
	// once, gives it to nobody, and both have to be woken.
	runtime.GOMAXPROCS(2)
	unix.Umask(0)
	return &worker{orders: &order.Orders{}, links: -1, beside: -1}
}

func run() int {
	report := os.NewFile(order.Report, "report")
	w := newWorker()
	stop, stopped := make(chan bool), make(chan bool)
	go w.tell(report, stop, stopped)
	err := w.do(os.Stdin)
	close(stop)
	<-stopped
	r := w.done()
	r.OK = err == nil
	if err != nil {
		r.Error = err.Error()
		if f, ok := errors.AsType[*failure](err); ok {
			r.Errno, r.Permanent, r.Turn = int(f.errno), f.permanent, f == errTurn
		}
	}
	w.write(report, &r)
	if err != nil {
		return exitFailed
	}
	return 0
}

// tell reports once a second how far it is. Who does not listen any more may be gone, as
// an execd that is restarted; the work goes on.
func (w *worker) tell(to io.Writer, stop <-chan bool, stopped chan<- bool) {
	defer close(stopped)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			w.write(to, nil)
		}
	}
}

func (w *worker) write(to io.Writer, r *order.Result) {
	line, err := json.Marshal(order.Line{
		Progress: order.Progress{Bytes: w.bytes.Load(), Total: w.total.Load(), Files: int(w.files.Load()), Before: w.before.Load()},
		Beat:     w.beat.Load(), Waits: int(w.waits.Load()), Result: r,
	})
	if err == nil {
		_, _ = to.Write(append(line, '\n'))
	}
}

func (w *worker) do(in io.Reader) error {
	lines := bufio.NewReader(io.LimitReader(in, order.MaxOrders+1))
	text, err := lines.ReadBytes('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("cannot read the orders: %w", err)
	}
	if w.orders, err = order.Decode(text); err != nil {
		return never(unix.EINVAL, "%v", err)
	}
	if (os.Geteuid() == 0 || os.Getuid() == 0) && !w.orders.Root {
		return never(unix.EPERM, "it does not work as root")
	}
	if err := w.readBoot(); err != nil {
		return err
	}
	for _, fd := range []int{order.Files, order.Say} {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || kind(&st) != unix.S_IFDIR {
			return never(unix.EBADF, "descriptor %d is no directory: only execd calls it", fd)
		}
		unix.CloseOnExec(fd)
	}
	if w.orders.Beside != "" {
		if err := w.enter(); err != nil {
			return err
		}
	}
	if w.orders.Turn {
		w.rates(io.MultiReader(lines, in))
	}
	switch {
	case w.orders.Unpack != nil:
		return w.receive()
	case w.orders.Pack != nil:
		w.stay = w.orders.Send != nil
		return w.emit()
	case len(w.orders.Bring) > 0:
		return w.bring()
	}
	w.stay = true
	if w.orders.Flush {
		return w.flush()
	}
	return w.send()
}

func (w *worker) readBoot() error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("cannot tell one boot from another: %w", err)
	}
	w.boot = strings.TrimSpace(string(boot))
	return nil
}

func itoa(n int) string { return strconv.Itoa(n) }
