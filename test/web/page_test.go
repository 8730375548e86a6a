package web

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"paddock/execd/api"
	"paddock/test/harness"
)

// What the test has of everything: more jobs than the table shows, and spans in all lanes.
const (
	slots  = 20
	held   = 940
	tasks  = 1000 // each is over at once, and has two spans
	budget = 50 * time.Millisecond
	first  = time.Second
)

// busy starts an execd that has run much, runs some and has hundreds of jobs that wait.
func busy(t *testing.T) *harness.Daemon {
	t.Helper()
	d := start(t, map[string]string{
		"queues/all.q":  fmt.Sprintf("qname all.q\nslots %d\n", slots-4),
		"queues/fast.q": "qname fast.q\nslots 4\n",
		"sge_conf":      "finished_jobs 100\n",
	})
	t.Cleanup(func() { command(t, d, "", "qdel", "-u", "*") })
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(d.Dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("data", strings.Repeat("0123456789abcdef", 1<<16), 0o644)
	write("render.sh", "#!/bin/sh\nn=0\nwhile :; do n=$((n+1)); echo frame $n; sleep 0.5; done\n", 0o755)
	command(t, d, "", "qsub", "-terse", "-cwd", "-o", "/dev/null", "-j", "y", "-N", "sweep", "-t", fmt.Sprintf("1-%d", tasks), "-sync", "y", "-b", "y", "true")
	command(t, d, "", "qsub", "-cwd", "-N", "failing", "-sync", "n", "-b", "y", "exit 3")
	command(t, d, "", "qsub", "-cwd", "-N", "carried", "-sync", "y", "-stagein", "data", "-stageout", "copy=made", "-b", "y", "cp data copy; sleep 1")
	command(t, d, "", "qsub", "-cwd", "-N", "render", "-l", "h_vmem=1G", "render.sh")
	command(t, d, "", "qsub", "-cwd", "-N", "stopped", "-o", "/dev/null", "-j", "y", "render.sh")
	command(t, d, "", "qsub", "-cwd", "-q", "fast.q", "-N", "fit", "-t", "1-3", "-o", "/dev/null", "-j", "y", "render.sh")
	command(t, d, "", "qsub", "-cwd", "-N", evil, "-o", "/dev/null", "-j", "y", "render.sh")
	for i := range held {
		r := api.SubmitRequest{Name: fmt.Sprintf("later%d", i), Binary: true, Command: "/bin/true", Cwd: "/", Hold: "u"}
		if err := d.Client.Call(t.Context(), api.VerbSubmit, &r, &api.SubmitReply{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := harness.WaitFor(patience, "jobs to run", func() (bool, error) {
		jobs, err := d.Jobs()
		running := 0
		for i := range jobs {
			if strings.HasPrefix(jobs[i].State, "r") {
				running++
			}
		}
		return running == 6, err
	}); err != nil {
		t.Fatal(err)
	}
	command(t, d, "", "qmod", "-sj", "stopped")
	return d
}

// evil is the name of a job that wants to be more than a name.
const evil = "<img-src=x-onerror=document.title='owned'><b>bold"

// newPage starts qweb for the execd in a directory, and returns the address that it prints.
func newPage(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), filepath.Join(os.Getenv("PADDOCK_BIN"), "qweb"))
	cmd.Env = append(os.Environ(), "PADDOCK_DIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			t.Errorf("qweb: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

const ready = `document.documentElement.dataset.ready && document.querySelectorAll('#jobs tbody tr').length > 100 && document.querySelectorAll('#ended tbody tr').length === 50`

// TestPage has a browser look at a busy host: what it shows, how quick it is, that it does nothing
// else, and that it can be read by all, in both schemes and on a small screen.
func TestPage(t *testing.T) {
	b := newBrowser(t)
	d := busy(t)
	address := newPage(t, d.Dir)
	axe := axeCore(t)
	for _, scheme := range []string{"light", "dark"} {
		b.view(1400, 1000, scheme)
		b.open(address)
		b.until("the page to show all", ready)
		b.eval(`[...document.querySelectorAll('#zoom button')].find((b) => b.textContent === '1m').click()`, nil)
		b.eval(`[...document.querySelectorAll('#jobs tbody tr')].find((r) => r.cells[1].textContent === 'render').querySelector('button').click()`, nil)
		b.until("the job to be shown, with what it has written", `document.querySelector('#d-output pre')?.textContent.includes('frame')`)
		b.until("its curves", `document.querySelectorAll('#d-curves canvas').length === 2`)
		quick(t, b)
		b.shoot("wide-" + scheme)
		b.audit(axe)
		b.view(360, 740, scheme)
		b.until("the page to be as wide as the screen", `document.documentElement.scrollWidth <= 360 && innerWidth === 360`)
		b.shoot("small-" + scheme)
		b.audit(axe)
	}
	b.view(1400, 1000, "light")
	var names struct{ Title, Names, Bold string }
	b.eval(`({title: document.title, names: document.querySelector('#jobs').textContent, bold: String(document.querySelectorAll('#jobs b, #jobs img').length)})`, &names)
	if strings.Contains(names.Title, "owned") || !strings.Contains(names.Names, evil) || names.Bold != "0" {
		t.Errorf("the name of a job is taken for markup: %+v", names)
	}
	keys(b)
	if wrong := b.complaints(strings.SplitAfter(address, "/#")[0][:len(strings.SplitAfter(address, "/#")[0])-1]); len(wrong) > 0 {
		t.Errorf("the browser has complaints:\n%s", strings.Join(wrong, "\n"))
	}
}

// quick looks at how long the page took. The machine may be busy with other tests, which interrupt it:
// of updates that write all rows of the table anew the least counts, and of the first paint twice the
// time is let pass.
func quick(t *testing.T, b *browser) {
	t.Helper()
	var took struct{ Paint, Update, Draw float64 }
	b.eval(`(async () => {
		const filter = document.querySelector('#filter'), before = performance.now();
		const frame = () => new Promise((done) => requestAnimationFrame(done));
		for (const text of ['later', '', 'later1', '', 'later2', '', 'later', '']) {
			filter.value = text;
			filter.dispatchEvent(new Event('input'));
			await frame();
			await frame();
		}
		const least = (name) => Math.min(...performance.getEntriesByName(name).filter((m) => m.startTime > before || name === 'chart').map((m) => m.duration));
		return {paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0, update: least('update'), draw: least('chart')};
	})()`, &took)
	t.Logf("first paint %.0f ms, an update %.1f ms, the chart %.1f ms", took.Paint, took.Update, took.Draw)
	if limit := float64(2 * first.Milliseconds()); took.Paint <= 0 || took.Paint > limit {
		t.Errorf("the first paint came after %.0f ms; want %.0f at most", took.Paint, limit)
	}
	if limit := float64(budget.Milliseconds()); took.Update <= 0 || took.Update+took.Draw > limit {
		t.Errorf("an update takes %.1f ms of script, and the chart %.1f; want %.0f at most", took.Update, took.Draw, limit)
	}
}

// keys goes through the page by its keys.
func keys(b *browser) {
	b.t.Helper()
	pressed := func(what string) string {
		return fmt.Sprintf(`[...document.querySelectorAll('#zoom button')].find((b) => b.getAttribute('aria-pressed') === 'true')?.textContent === %q`, what)
	}
	b.eval(`document.activeElement.blur()`, nil)
	b.press("Escape")
	b.until("no job to be chosen", `document.querySelector('#detail-title').textContent === 'No job chosen'`)
	b.press("n")
	b.until("a run to be chosen", `document.querySelector('#detail-title').textContent !== 'No job chosen'`)
	b.press("ArrowLeft")
	b.until("the past", `!document.querySelector('#now').hidden`)
	b.press("0")
	b.until("the present", `document.querySelector('#now').hidden`)
	b.eval(`[...document.querySelectorAll('#zoom button')][1].click()`, nil)
	b.until("five minutes", pressed("5m"))
	b.press("-")
	b.until("another range", "!("+pressed("5m")+")")
	b.press("/")
	b.until("the filter", `document.activeElement.id === 'filter'`)
	for k := range strings.SplitSeq("stopped", "") {
		b.press(k)
	}
	b.until("one job to be found", `document.querySelectorAll('#jobs tbody tr').length === 1 && document.querySelector('#jobs tbody').textContent.includes('suspended')`)
	b.press("Escape")
	b.press("d")
	b.until("the dark scheme", `document.documentElement.dataset.theme === 'dark'`)
	b.press("d")
}

// axeSum is the sum of axe-core 4.14.1 as its npm package has it. It looks for what keeps people from
// reading a page.
const axeSum = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"

// axeCore returns the script of axe-core.
func axeCore(t *testing.T) string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("testdata", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(script)); sum != axeSum {
		t.Fatalf("axe-core has the sum %s; want %s", sum, axeSum)
	}
	return string(script)
}

// audit has axe-core look at the page.
func (b *browser) audit(axe string) {
	b.t.Helper()
	b.eval(axe+"; undefined", nil)
	var found json.RawMessage
	b.eval(`axe.run().then((r) => r.violations.map((v) => ({id: v.id, help: v.help, nodes: v.nodes.slice(0, 5).map((n) => n.html.slice(0, 200) + ' ' + n.failureSummary)})))`, &found)
	if string(found) != "[]" {
		b.t.Errorf("axe-core finds %s", found)
	}
}
