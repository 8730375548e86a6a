package packages

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"paddock/test/harness"
)

const (
	unit  = "paddock-execd.service"
	alice = "alice" // has her jobs run by root's execd
	bob   = "bob"   // has an execd of his own
	home  = "/home/alice"
	// spool is execd's, in a machine that is called guest.
	spool = "/var/spool/paddock/guest"
)

// TestGuest is what is run in the machine. The steps of a part are one story: what one
// leaves the next one finds.
func TestGuest(t *testing.T) {
	type step struct {
		name string
		test func(*testing.T)
	}
	var steps []step
	switch os.Getenv(inGuest) {
	case "fresh":
		steps = []step{
			{"install", testInstall},
			{"verify", testVerify},
			{"web", testWeb},
			{"groups", testGroups},
			{"busy", testBusy},
			{"broken", testBroken},
			{"downgrade", testDowngrade},
			{"upgrade", testUpgrade},
			{"watchdog", testWatchdog},
			{"leave", testLeave},
			{"user", testUser},
		}
	case "again":
		steps = []step{
			{"reboot", testReboot},
			{"user", testUserAgain},
			{"remove", testRemove},
			{"purge", testPurge},
		}
	default:
		t.Skip("is run in the machine of TestMachine")
	}
	for _, s := range steps {
		began := time.Now()
		ok := t.Run(s.name, s.test)
		t.Logf("vm: %s took %.1f s", s.name, time.Since(began).Seconds())
		if !ok {
			t.Logf("log of %s:\n%s", unit, try("root", "journalctl --no-pager -b -u "+unit+" | grep -v -E 'left-over process|unclean termination|remains running' | tail -60").text)
		}
	}
}

// answer is what a command has printed, on both streams, and how it ended.
type answer struct {
	text string
	err  error
}

// command is a line of sh that a user has typed, who has no terminal and nothing to say.
func command(ctx context.Context, user, line string) *exec.Cmd {
	dir := "/home/" + user
	argv := []string{"/bin/sh", "-c", line}
	if user == "root" {
		dir = "/root"
	} else {
		argv = append([]string{"setpriv", "--reuid", user, "--regid", user, "--init-groups", "--"}, argv...)
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "USER=" + user, "LOGNAME=" + user, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	return cmd
}

func try(user, line string) answer {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := command(ctx, user, line).CombinedOutput()
	return answer{string(out), err}
}

// do runs a line that has to work.
func do(t *testing.T, user, line string) string {
	t.Helper()
	a := try(user, line)
	if a.err != nil {
		t.Fatalf("%s: %v\n%s", line, a.err, a.text)
	}
	return a.text
}

// await waits until a line of sh works.
func await(t *testing.T, user, line string) {
	t.Helper()
	if err := harness.WaitFor(harness.Patience, line, func() (bool, error) {
		a := try(user, line)
		if a.err != nil {
			return false, fmt.Errorf("%w: %s", a.err, a.text)
		}
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
}

// says fails the test unless a text matches.
func says(t *testing.T, what, text, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).MatchString(text) {
		t.Errorf("%s does not say %q:\n%s", what, pattern, text)
	}
}

// property returns one of the unit.
func property(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(do(t, "root", "systemctl show --value -p "+name+" "+unit))
}

// sleepers returns the processes of jobs that sleep.
func sleepers() []string {
	pids := strings.Fields(try("root", "pgrep -x -u alice sleep").text)
	slices.Sort(pids)
	return pids
}

func (a answer) String() string { return a.text }

// testInstall installs the package, whereupon a user submits his first job.
func testInstall(t *testing.T) {
	do(t, "root", "useradd -m -s /bin/sh "+alice+" && useradd -m -s /bin/sh "+bob)
	list := files(t)
	if err := os.WriteFile(own+"/before", []byte(strings.Join(list, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", do(t, "root", "apt install "+firstDeb))
	began := time.Now()
	t.Logf("%s", do(t, alice, "echo 'echo hello from job $JOB_ID' | qsub -cwd -sync y"))
	t.Logf("vm: the first qsub had its job done %.1f s after apt; 10 s are promised", time.Since(began).Seconds())
	if text := do(t, alice, "cat STDIN.o1"); text != "hello from job 1\n" {
		t.Errorf("the output is %q", text)
	}
	says(t, "accounting", do(t, alice, "qacct -j 1"), `exit_status +0\b`)
	if time.Since(began) > 10*time.Second {
		t.Error("that is too late")
	}
}

// testVerify has systemd look at the units.
func testVerify(t *testing.T) {
	verified := do(t, "root", "systemd-analyze verify --man=no "+unit)
	for line := range strings.Lines(verified) {
		// systemd 252 has not got it yet.
		if !strings.Contains(line, "DelegateSubgroup") {
			t.Errorf("systemd-analyze verify: %s", line)
		}
	}
	t.Logf("vm: %s", strings.TrimSpace(try("root", "systemd-analyze security --no-pager "+unit+" | tail -1").text))
}

// webUnit serves the page of qweb on webSocket.
const (
	webUnit   = "paddock-web.service"
	webSocket = "/run/paddock-web/web.sock"
)

// testWeb has the page served by its unit, which may do next to nothing, and by a user.
func testWeb(t *testing.T) {
	do(t, "root", "systemctl start "+webUnit)
	await(t, "root", "[ -S "+webSocket+" ]")
	if user := strings.TrimSpace(do(t, "root", "ps -o user= -p $(systemctl show --value -p MainPID "+webUnit+")")); user != "paddock" {
		t.Errorf("it runs as %s", user)
	}
	display := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", webSocket)
	}}}
	defer display.CloseIdleConnections()
	live(t, display, "http://paddock.example", "")
	do(t, "root", "systemctl is-active "+webUnit+" && systemctl stop "+webUnit)
	t.Logf("vm: %s", strings.TrimSpace(try("root", "systemd-analyze security --no-pager "+webUnit+" | tail -1").text))

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	qweb := command(ctx, alice, "exec qweb")
	out, err := qweb.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := qweb.Start(); err != nil {
		t.Fatal(err)
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("qweb has printed no address: %v", err)
	}
	at, token, _ := strings.Cut(strings.TrimSpace(address), "/#")
	if status, text := page(t, http.DefaultClient, at+"/api/live", ""); status != http.StatusUnauthorized {
		t.Errorf("without the token: %d %s", status, text)
	}
	live(t, http.DefaultClient, at, token)
	if err := qweb.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := qweb.Wait(); err != nil {
		t.Errorf("qweb: %v", err)
	}
}

// live looks at the page, and waits until it has been told of the host and of what has run.
func live(t *testing.T, client *http.Client, at, token string) {
	t.Helper()
	if status, text := page(t, client, at+"/", ""); status != http.StatusOK || !strings.Contains(text, "<title>Paddock</title>") {
		t.Errorf("the page: %d %s", status, text)
	}
	status, text := page(t, client, at+"/api/live", token)
	if status != http.StatusOK {
		t.Errorf("what it is told: %d %s", status, text)
	}
	says(t, "the page", text, `"host":"guest"`)
	says(t, "the page", text, `"job":1,`)
}

// page asks for something, and returns what comes, or what has come of what never ends once both the
// host and its runs were told.
func page(t *testing.T, client *http.Client, address, token string) (status int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	reply, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	in := bufio.NewReader(reply.Body)
	for err == nil && (!strings.Contains(text, `"timeline":`) || !strings.Contains(text, `"status":`)) {
		var line string
		line, err = in.ReadString('\n')
		text += line
	}
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatalf("%s: %v\n%s", address, err, text)
	}
	return reply.StatusCode, text
}

// testGroups has jobs reach their limits.
func testGroups(t *testing.T) {
	t.Logf("vm: %s", strings.TrimSpace(do(t, "root", "journalctl --no-pager -b -o cat -u "+unit+" | grep 'control groups'")))
	do(t, alice, "echo 'cat /proc/self/cgroup; echo $TMPDIR; ls -ld $TMPDIR' | qsub -terse -sync y -j y -cwd -N places")
	places := do(t, alice, "cat places.o*")
	t.Logf("%s", places)
	says(t, "the job", places, `(?m)^/tmp/\d+\.1\.all\.q\ndrwxr-xr-x \d+ alice alice`)
	do(t, "root", "echo 'execd_params PRIVATE_TMP=TRUE' >>/etc/paddock/sge_conf && qconf -reload")
	do(t, alice, "echo '[ $(ls -A /tmp) = ${TMPDIR#/tmp/} ] && touch /tmp/mine /var/tmp/mine' | qsub -terse -sync y -j y -cwd -N private")
	do(t, "root", "[ ! -e /tmp/mine ] && [ ! -e /var/tmp/mine ] && sed -i /PRIVATE_TMP/d /etc/paddock/sge_conf && qconf -reload")
	a := try(alice, "echo 'head -c 100M /dev/zero | tail -c 100M | wc -c' | qsub -terse -sync y -j y -cwd -N hungry -l h_vmem=32M")
	says(t, "accounting", do(t, alice, "qacct -j hungry"), `out of memory, limit h_vmem 32M`)
	if a.err == nil {
		t.Errorf("a job that took more than h_vmem ended well:\n%s", a)
	}
}

// busy is what goes on while packages are installed.
var busy struct {
	jobs     []string // processes
	sessions []*session
}

// session is an interactive job that is asked whether it is still the same.
type session struct {
	terminal *harness.Terminal
	read     int
	shell    string
}

func startSession(t *testing.T) *session {
	t.Helper()
	terminal, err := harness.StartOnTerminal(command(context.Background(), alice, "exec qrsh"), 80, 24)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{terminal: terminal}
	s.shell = s.ask(t)
	return s
}

func (s *session) ask(t *testing.T) string {
	t.Helper()
	if err := s.terminal.Type("echo shell=$((0 + $$)).\n"); err != nil {
		t.Fatal(err)
	}
	end, err := s.terminal.Await(s.read, `shell=\d+\.`)
	if err != nil {
		t.Fatalf("a session: %v", err)
	}
	text := s.terminal.Text()[s.read:end]
	s.read = end
	return text[strings.LastIndex(text, "shell="):]
}

// testBusy starts jobs, sessions, and transfers that wait for somebody to open the gate.
func testBusy(t *testing.T) {
	do(t, "root", "mkfifo -m 444 "+gate+" && qconf -rattr queue slots 30 all.q")
	do(t, "root", "printf 'FILETRANSFER_PLUGINS = "+plugin+"\nTRANSFER_PLUGIN_STALL = 1000\n' >>/etc/paddock/hooks.conf && qconf -reload")
	do(t, alice, "mkdir arrived && qsub -terse -t 1-20 -b y sleep 86400")
	await(t, alice, "[ $(qstat -s r | grep -c sleep) = 20 ]")
	for range 2 {
		busy.sessions = append(busy.sessions, startSession(t))
	}
	for _, name := range []string{"one", "two"} {
		do(t, alice, "echo 'head -c 300k /dev/urandom >"+name+"; sha256sum "+name+" >"+home+"/"+name+".sum' | qsub -terse -j y -N "+name+" -stageout "+name+" -stageout_to gate://"+home+"/arrived")
	}
	await(t, alice, "[ $(qstat | grep -c ' to ') = 2 ]")
	await(t, alice, "[ $(pgrep -c -x plugin) = 2 ]")
	if busy.jobs = sleepers(); len(busy.jobs) != 20 {
		t.Fatalf("%d jobs sleep, and not 20: %v", len(busy.jobs), busy.jobs)
	}
}

// unhurt fails the test unless all that testBusy has started goes on.
func unhurt(t *testing.T) {
	t.Helper()
	if now := sleepers(); !slices.Equal(now, busy.jobs) {
		t.Errorf("the jobs were processes %v, and now there are %v", busy.jobs, now)
	}
	for _, s := range busy.sessions {
		if now := s.ask(t); now != s.shell {
			t.Errorf("a session was %s and now is %s", s.shell, now)
		}
	}
	says(t, "qstat", do(t, alice, "qstat"), `(?s) one .* to .* two .* to `)
}

// testUpgrade puts the next version in place of one that runs all kinds of jobs.
func testUpgrade(t *testing.T) {
	execd := property(t, "MainPID")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	held, failed := make(chan time.Duration, 1), make(chan string, 1)
	go client(ctx, held, failed)
	t.Logf("%s", do(t, "root", "apt install "+secondDeb))
	says(t, "qstat", do(t, alice, "qstat -version"), regexp.QuoteMeta(next))
	if now := property(t, "MainPID"); now == execd {
		t.Errorf("execd was not replaced: it is still process %s", now)
	}
	cancel()
	longest := <-held
	t.Logf("vm: a client was without an answer for %.2f s at most during the upgrade; 2 s are promised", longest.Seconds())
	if longest > 2*time.Second {
		t.Error("that is too long")
	}
	select {
	case why := <-failed:
		t.Errorf("a client during the upgrade: %s", why)
	default:
	}
	unhurt(t)
	do(t, "root", ": >"+gate)
	do(t, alice, "qwait one two && cd arrived && cat ../*.sum && sha256sum -c ../*.sum")
}

// client asks execd again and again. It tells why it got no answer, and in the end how
// long it was without one at most.
func client(ctx context.Context, held chan<- time.Duration, failed chan<- string) {
	var longest time.Duration
	for answered := time.Now(); ctx.Err() == nil; answered = time.Now() {
		if a := try(alice, "qstat -s r"); a.err != nil || !strings.Contains(a.text, "sleep") {
			select {
			case failed <- fmt.Sprint(a.err, a):
			default:
			}
		}
		longest = max(longest, time.Since(answered))
	}
	held <- longest
}

// testBroken installs the next version where the configuration has a mistake.
func testBroken(t *testing.T) {
	execd := property(t, "MainPID")
	do(t, "root", "cp -p /etc/paddock/queues/all.q /root && echo 'nonsense 1' >>/etc/paddock/queues/all.q")
	out := do(t, "root", "apt install "+secondDeb)
	says(t, "apt", out, `all\.q.*nonsense`)
	says(t, "apt", out, `paddock: execd is not restarted`)
	if now := property(t, "MainPID"); now != execd {
		t.Errorf("execd was process %s and is %s", execd, now)
	}
	unhurt(t)
	do(t, "root", "cp -p /root/all.q /etc/paddock/queues/all.q")
}

// testDowngrade installs an older version, which does not know the format of the spool.
func testDowngrade(t *testing.T) {
	execd := property(t, "MainPID")
	was := number(t, do(t, "root", "cat "+spool+"/format"))
	do(t, "root", fmt.Sprintf("echo %d >%s/format", was+1, spool))
	a := try("root", "apt install -y --allow-downgrades "+firstDeb)
	t.Logf("%v\n%s", a.err, a)
	says(t, "apt", a.text, fmt.Sprintf(`spool has %d, this execd uses %d`, was+1, was))
	if now := property(t, "MainPID"); now != execd {
		t.Errorf("execd was process %s and is %s", execd, now)
	}
	unhurt(t)
	do(t, "root", fmt.Sprintf("echo %d >%s/format", was, spool))
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// testWatchdog stops execd so that it does not say any more that it lives.
func testWatchdog(t *testing.T) {
	if property(t, "WatchdogUSec") == "0" {
		t.Fatal("the unit has no watchdog")
	}
	do(t, "root", "mkdir -p /run/systemd/system/"+unit+".d && printf '[Service]\\nWatchdogSec=5\\n' >/run/systemd/system/"+unit+".d/test.conf && systemctl daemon-reload && systemctl restart "+unit)
	jobs, execd := sleepers(), property(t, "MainPID")
	do(t, "root", "kill -STOP "+execd)
	await(t, "root", "pid=$(systemctl show --value -p MainPID "+unit+"); [ $pid != 0 ] && [ $pid != "+execd+" ]")
	await(t, alice, "qstat")
	if now := sleepers(); !slices.Equal(now, jobs) || len(now) == 0 {
		t.Errorf("the jobs were processes %v, and now there are %v", jobs, now)
	}
	says(t, "systemd", do(t, "root", "journalctl --no-pager -b -u "+unit), `(?i)watchdog timeout`)
	do(t, "root", "rm -r /run/systemd/system/"+unit+".d && systemctl daemon-reload && systemctl restart "+unit)
}

// testLeave leaves jobs behind for the next boot, and a session that this one is not to
// wait for.
func testLeave(t *testing.T) {
	do(t, alice, "qdel -f sleep QRLOGIN; rm -f ran heeded")
	await(t, alice, "[ -z \"$(qstat)\" ]")
	do(t, alice, "qsub -terse -N once -r n -b y -cwd -j y sleep 86400")
	await(t, alice, "qstat -s r | grep once")
	rerun(t, alice)
	startSession(t)
}

// testReboot finds what the boot before has left.
func testReboot(t *testing.T) {
	await(t, "root", "systemctl is-active "+unit)
	reran(t, alice)
	await(t, alice, "qacct -j once")
	once := do(t, alice, "qacct -j once")
	t.Logf("%s", once)
	says(t, "accounting", once, `failed +19\b(?s).*the host was restarted while the job ran`)
}

// rerun are jobs of which two are cut short by the reboot, by which one exits in good
// order, and one waits for them.
func rerun(t *testing.T, user string) {
	t.Helper()
	do(t, user, "echo 'echo x >>ran; [ $(wc -l <ran) -gt 1 ] || sleep 86400' | qsub -terse -N twice -r y -cwd -j y")
	do(t, user, "echo 'trap \"exit 0\" TERM; echo x >>heeded; [ $(wc -l <heeded) -gt 1 ] || { sleep 86400 & wait; }' | qsub -terse -N heeds -r y -cwd -j y")
	do(t, user, "qsub -terse -N later -hold_jid twice,heeds -b y -cwd -j y -o later echo I waited")
	await(t, user, "[ -s ran ] && [ -s heeded ]")
}

// reran finds that rerun's have done their work.
func reran(t *testing.T, user string) {
	t.Helper()
	await(t, user, "grep 'I waited' later")
	for _, file := range []string{"ran", "heeded"} {
		if ran := do(t, user, "cat "+file); ran != "x\nx\n" {
			t.Errorf("a job that may run again has left %q in %s", ran, file)
		}
	}
}

// testUser has a user set up an execd of his own. Clients ask root's where there is one.
func testUser(t *testing.T) {
	do(t, "root", "systemctl stop "+unit+" && loginctl enable-linger "+bob)
	await(t, bob, "XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user show-environment")
	do(t, bob, "mkdir -p .config/paddock/queues && printf 'qname all.q\\nslots 2\\n' >.config/paddock/queues/all.q")
	set := do(t, bob, "execd -boot")
	t.Logf("%s", set)
	says(t, "execd -boot", set, `is enabled and runs`)
	says(t, "execd -boot", set, `lingering is on`)
	rerun(t, bob)
	t.Logf("vm: bob: %s", do(t, "root", "journalctl --no-pager -b -o cat _UID=$(id -u bob) | grep 'control groups'"))
	// Again it has nothing to do, and the next execd finds the job.
	do(t, bob, "execd -boot && XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user restart "+unit+" && qstat -s r | grep twice")
}

// testUserAgain finds his execd and his jobs again.
func testUserAgain(t *testing.T) {
	reran(t, bob)
	await(t, bob, "XDG_RUNTIME_DIR=/run/user/$(id -u) systemctl --user is-active "+unit)
	t.Logf("%s", do(t, bob, "execd -boot -off"))
	do(t, "root", "loginctl disable-linger "+bob)
}

// testRemove removes the package while a job runs.
func testRemove(t *testing.T) {
	do(t, alice, "qsub -terse -b y sleep 86400")
	await(t, "root", "pgrep -x -u alice sleep") // a job runs before it is the program
	jobs := sleepers()
	out := do(t, "root", "apt remove -y paddock")
	says(t, "apt", out, `1 jobs? go(es)? on`)
	if now := sleepers(); !slices.Equal(now, jobs) || len(now) != 1 {
		t.Errorf("the jobs were processes %v, and now there are %v", jobs, now)
	}
	a := try("root", "apt purge -y paddock")
	says(t, "apt", a.text, `not purged`)
	if a.err == nil {
		t.Error("it was purged while a job ran")
	}
	do(t, "root", "kill "+strings.Join(jobs, " "))
}

// testPurge finds no file that was not there before but those that are named.
func testPurge(t *testing.T) {
	await(t, "root", "! pgrep shepherd")
	t.Logf("%s", do(t, "root", "apt purge -y paddock"))
	before, err := os.ReadFile(own + "/before")
	if err != nil {
		t.Fatal(err)
	}
	was := strings.Split(string(before), "\n")
	var left []string
	for _, path := range files(t) {
		if _, found := slices.BinarySearch(was, path); !found && !named.MatchString(path) {
			left = append(left, path)
		}
	}
	if len(left) > 0 {
		t.Errorf("purged, and still there:\n%s", strings.Join(left, "\n"))
	}
	for _, path := range was {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) && !named.MatchString(path) {
			t.Errorf("purged, and no longer there: %s", path)
		}
	}
}

// named is what may differ: the logs and accounting of execd, what dpkg, apt and
// systemd write for themselves, and what the test and its user have.
var named = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`/var/spool/paddock(/guest(/messages.*)?)?`,
	`/var/lib/paddock(/accounting)?`,
	`/var/(cache|log)/.*`,
	`/var/lib/(dpkg|apt|systemd)/.*`,
	`/etc/(passwd|group|shadow|gshadow)-`,
	`/home/.*`,
	`/root/.*`,
}, `|`) + `)$`)

// files lists what is on the disk, in order, but for the test's own.
func files(t *testing.T) []string {
	t.Helper()
	out := bytes.TrimSpace([]byte(do(t, "root", `find / -xdev \( -path /tmp -o -path /var/tmp -o -path `+own+` \) -prune -o -print`)))
	list := strings.Split(string(out), "\n")
	for i, path := range list {
		list[i] = filepath.Clean(path)
	}
	slices.Sort(list)
	return list
}
