package workflow

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"paddock/execd/api"
	"paddock/execd/api/accounting"
	"paddock/test/harness"
)

// asTwo runs a command in a network of its own, on a host of the name one. Two is
// another to who knows but names and addresses: nobody has its.
const asTwo = `#!/bin/sh
set -e
hostname one
ip link set lo up
ip link add name mpi0 type veth peer name mpi1
ip addr add 192.0.2.1/24 dev mpi0
ip link set mpi0 up
ip link set mpi1 up
printf '127.0.0.1 localhost\n192.0.2.1 one\n192.0.2.2 two\n' >"${0%/*}/hosts"
mount --bind "${0%/*}/hosts" /etc/hosts
exec "$@"
`

// sums is an MPI program. The ranks add up what they have, and with a file to wait
// for they do not end.
const sums = `import ctypes, os, sys, time
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
def known(name):
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
mpi.MPI_Init(None, None)
world = known("ompi_mpi_comm_world")
rank, total = ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mine = ctypes.c_int(rank.value + 20)
mpi.MPI_Allreduce(ctypes.byref(mine), ctypes.byref(total), 1, known("ompi_mpi_int"), known("ompi_mpi_op_sum"), world)
print("rank %d in %s: %d" % (rank.value, os.environ["JOB_NAME"], total.value), flush=True)
if len(sys.argv) > 1:
    with open("%s.%d" % (sys.argv[1], rank.value), "w") as f:
        f.write("%d %d\n" % (os.getpid(), os.getppid()))
    time.sleep(100000)
mpi.MPI_Finalize()
`

// newCluster starts an execd whose host has two names, each with a slot of a job
// of the environment mpi.
func newCluster(t *testing.T) *site {
	t.Helper()
	s := &site{dir: workplace(t, map[string]string{"sums.py": sums})}
	place := newPlace(t)
	etc := api.DevPlaces(place).Config
	programs := map[string]string{
		"as-two":    asTwo,
		"rename.sh": "#!/bin/sh\nsed -i 's/^one 2 \\(.*\\)/one 1 \\1\\ntwo 1 \\1/' \"$1\"\n",
	}
	for name, text := range programs {
		if err := harness.WriteExecutable(filepath.Join(place, name), text); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{
		"host_aliases": "one two\n",
		"queues/all.q": "qname all.q\nslots 4\nshell_start_mode unix_behavior\npe_list mpi\n",
		"pes/mpi":      "pe_name mpi\ncontrol_slaves TRUE\nstart_proc_args root@" + place + "/rename.sh $pe_hostfile\n",
	}
	for name, text := range files {
		path := filepath.Join(etc, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	via := []string{"unshare", "--net", "--mount", "--uts", filepath.Join(place, "as-two")}
	if out, err := exec.CommandContext(t.Context(), via[0], append(via[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("the kernel lets us have no network of our own: %v: %s", err, out)
	}
	s.start(t, harness.Options{Bin: bin, Dir: place, Mode: "-root", Via: via, Notify: filepath.Join(place, "ready")})
	return s
}

// accounted returns the lines of the job in the accounting file: its tasks, then
// itself.
func (s *site) accounted(t *testing.T, job int) []accounting.Record {
	t.Helper()
	list := slices.DeleteFunc(records(t, s.Daemon), func(r accounting.Record) bool { return r.JobNumber != job })
	if len(list) != 2 || list[0].PETaskID == "NONE" || list[1].PETaskID != "NONE" {
		t.Fatalf("job %d is accounted as %+v; want a task and the job\nexecd:\n%s", job, list, s.Log())
	}
	return list
}

// Open MPI starts its daemon on the second of two hosts by qrsh -inherit: in a task
// of the job, not by itself, as it does on the first.
func TestOpenMPI(t *testing.T) {
	t.Parallel()
	s := newCluster(t)

	const want = "rank 0 in sums: 41\nrank 1 in petask: 41\nended with 0\n"
	// Mpirun may warn.
	got := s.run(t, `qsub -sync y -cwd -o sums.out -e sums.err -N sums -v PATH -pe mpi 2 <<'end'
#!/bin/sh
mpirun /usr/bin/python3 sums.py >ranks
code=$?
sort ranks
echo ended with $code
exit $code
end`)
	if out := read(t, s.dir+"/sums.out"); got.exit != 0 || out != want {
		t.Errorf("exit status %d, the job wrote\n%swant\n%sand said\n%s%s\nexecd:\n%s", got.exit, out, want, read(t, s.dir+"/sums.err"), got.err, s.Log())
	}
	r := s.accounted(t, 1)
	if task := r[0]; task.JobName != "petask" || task.Owner != user.Name || task.CPU == 0 {
		t.Errorf("accounted: %+v", task)
	}
	// Mpirun does not wait for its daemon's end, so that the job's may come first.
	if task := r[0]; (task.Failed != 0 || task.ExitStatus != 0) && task.Reason != "killed at the end of the job" {
		t.Errorf("accounted: %+v", task)
	}
	if r[1].Failed != 0 || r[1].ExitStatus != 0 || r[1].Owner != user.Name {
		t.Errorf("accounted: %+v", r[1])
	}
	if !strings.Contains(s.Log(), "job 1.1/1.") {
		t.Errorf("execd knows of no task:\n%s", s.Log())
	}

	// What a program in a task ends with is the job's.
	got = s.run(t, `qsub -sync y -cwd -j y -o /dev/null -N fails -v PATH -pe mpi 2 <<'end'
#!/bin/sh
mpirun sh -c 'test $OMPI_COMM_WORLD_RANK = 0 || exit 3'
end`)
	if r = s.accounted(t, 2); got.exit != 3 || r[1].ExitStatus != 3 {
		t.Errorf("exit status %d, accounted %d; want 3\nexecd:\n%s", got.exit, r[1].ExitStatus, s.Log())
	}

	// Deleted. It finds qrsh below SGE_ROOT, since its PATH has none.
	got = s.run(t, `qsub -cwd -j y -o held.out -N held -v PATH=/none -pe mpi 2 <<'end'
#!/bin/sh
/usr/bin/mpirun /usr/bin/python3 sums.py up
end`)
	if got.exit != 0 {
		t.Fatal(got.err)
	}
	var left []string
	err := harness.WaitFor(10*harness.Patience, "the ranks to run", func() (bool, error) {
		left = nil
		for rank := range 2 {
			b, err := os.ReadFile(fmt.Sprintf("%s/up.%d", s.dir, rank))
			if err != nil || !strings.HasSuffix(string(b), "\n") {
				return false, err
			}
			left = append(left, strings.Fields(string(b))...)
		}
		return true, nil
	})
	if err != nil {
		t.Fatalf("%v\n%s\nexecd:\n%s", err, read(t, s.dir+"/held.out"), s.Log())
	}
	if name := read(t, "/proc/"+left[3]+"/comm"); name != "orted\n" {
		t.Errorf("the second rank was started by %q", name)
	}
	if got = s.run(t, "qdel 3"); got.exit != 0 {
		t.Error(got.err)
	}
	if err := s.WaitJob(3); err != nil {
		t.Fatal(err)
	}
	gone(t, left...)
	// The daemon's end may be its own: it has lost mpirun.
	if r = s.accounted(t, 3); r[1].Failed != 100 {
		t.Errorf("accounted: %+v", r)
	}
}
