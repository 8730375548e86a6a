package pilot

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// host is one with 64 cores and 128 GiB, the environment, the files, and what squeue or qstat says.
func host(env, files map[string]string, said string) *Host {
	return &Host{
		Env: func(name string) string { return env[name] },
		Read: func(path string) ([]byte, error) {
			text, ok := files[path]
			if !ok {
				return nil, fs.ErrNotExist
			}
			return []byte(text), nil
		},
		Mtime: func(string) (time.Time, error) { return time.Unix(1000, 0), nil },
		Ask: func(name string, _ ...string) (string, error) {
			if said == "" || name != "squeue" && name != "qstat" {
				return "", fs.ErrNotExist
			}
			return said, nil
		},
		Cores: 64, Memory: 128 << 30,
	}
}

// What each source says, of which the smallest counts.
func TestFind(t *testing.T) {
	const gib = 1 << 30
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	for name, tt := range map[string]struct {
		env, files map[string]string
		squeue     string
		end        time.Time
		want       Allocation
		warning    string
	}{
		"no batch system":        {want: Allocation{none, "", 64, 128 * gib, time.Time{}, nil}, warning: "it is not known when"},
		"no batch system, -end":  {end: at(7), want: Allocation{none, "", 64, 128 * gib, at(7), nil}},
		"a job id and no engine": {env: map[string]string{"JOB_ID": "3"}, want: Allocation{none, "", 64, 128 * gib, time.Time{}, nil}, warning: "it is not known when"},
		"slurm": {
			env:  map[string]string{"SLURM_JOB_ID": "8", "SLURM_CPUS_ON_NODE": "16", "SLURM_MEM_PER_NODE": "32768", "SLURM_JOB_END_TIME": "5000"},
			want: Allocation{slurm, "8", 16, 32 * gib, at(5000), nil},
		},
		"slurm, memory of a core": {
			env:  map[string]string{"SLURM_JOB_ID": "8", "SLURM_CPUS_ON_NODE": "4", "SLURM_MEM_PER_CPU": "1024", "SLURM_JOB_END_TIME": "5000"},
			want: Allocation{slurm, "8", 4, 4 * gib, at(5000), nil},
		},
		"slurm, of old": {
			env: map[string]string{"SLURM_JOB_ID": "8"}, squeue: "2026-11-27T18:00:00\n",
			want: Allocation{slurm, "8", 64, 128 * gib, time.Date(2026, 11, 27, 18, 0, 0, 0, time.Local), nil},
		},
		"GPUs by CUDA": {
			env:  map[string]string{"SLURM_JOB_ID": "8", "SLURM_JOB_END_TIME": "5000", "SLURM_JOB_GPUS": "7", "CUDA_VISIBLE_DEVICES": "1,GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"},
			want: Allocation{slurm, "8", 64, 128 * gib, at(5000), []string{"1", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"}},
		},
		"GPUs by Slurm": {
			env:  map[string]string{"SLURM_JOB_ID": "8", "SLURM_JOB_END_TIME": "5000", "SLURM_JOB_GPUS": "2,3"},
			want: Allocation{slurm, "8", 64, 128 * gib, at(5000), []string{"2", "3"}},
		},
		"GPUs by Grid Engine": {
			env: map[string]string{"SGE_HGR_gpu": "gpu0 gpu2"}, end: at(7),
			want: Allocation{none, "", 64, 128 * gib, at(7), []string{"0", "2"}},
		},
		"GPUs that are none": {
			env: map[string]string{"CUDA_VISIBLE_DEVICES": "0,0"}, end: at(7),
			want: Allocation{none, "", 64, 128 * gib, at(7), nil}, warning: `CUDA_VISIBLE_DEVICES is "0,0", by which no GPU is known`,
		},
		"slurm without a limit": {
			env: map[string]string{"SLURM_JOB_ID": "8"}, squeue: "NOTSET\n", want: Allocation{slurm, "8", 64, 128 * gib, time.Time{}, nil}, warning: "it is not known when",
		},
		"slurm that does not answer": {
			env: map[string]string{"SLURM_JOB_ID": "8"}, want: Allocation{slurm, "8", 64, 128 * gib, time.Time{}, nil}, warning: "cannot ask Slurm when the job ends",
		},
		"slurm, nonsense": {
			env:  map[string]string{"SLURM_JOB_ID": "8", "SLURM_CPUS_ON_NODE": "16(x2)", "SLURM_JOB_END_TIME": "5000", "SLURM_MEM_PER_CPU": "8796093022207"},
			want: Allocation{slurm, "8", 64, 128 * gib, at(5000), nil}, warning: `SLURM_CPUS_ON_NODE is "16(x2)", which is no number`,
		},
		"grid engine": {
			env:    map[string]string{"JOB_ID": "9", "SGE_TASK_ID": "undefined", "NSLOTS": "8", "SGE_JOB_SPOOL_DIR": "/s/9.1"},
			files:  map[string]string{"/s/9.1/config": "queue=all.q\nh_vmem=2G\nh_rss=INFINITY\n"},
			squeue: "job_number:  9\nhard resource_list:         h_vmem=2G,h_rt=3600,s_rt=0:58:20\nmail_list: x\n",
			want:   Allocation{ge, "9", 8, 16 * gib, at(4500), nil},
		},
		"paddock": {
			env:    map[string]string{"JOB_ID": "9", "SGE_TASK_ID": "undefined", "NSLOTS": "8", "SGE_JOB_SPOOL_DIR": "/s/9.1"},
			files:  map[string]string{"/s/9.1/config": "paddock_h_rt=3600\npaddock_s_rt=3500\nh_vmem=2G\n"},
			squeue: "hard resource_list: h_rt=1\n",
			want:   Allocation{ge, "9", 8, 16 * gib, at(4500), nil},
		},
		"grid engine, a task without limits": {
			env:   map[string]string{"JOB_ID": "9", "SGE_TASK_ID": "4", "NSLOTS": "?", "SGE_JOB_SPOOL_DIR": "/s/9.4"},
			files: map[string]string{"/s/9.4/config": "h_vmem=INFINITY\n"}, squeue: "hard resource_list: h_rt=INFINITY,s_rt=18446744073709551615\n",
			want: Allocation{ge, "9.4", 1, 128 * gib, time.Time{}, nil}, warning: "it is not known when",
		},
		"grid engine, not to be read": {
			env:  map[string]string{"JOB_ID": "9", "NSLOTS": "8", "SGE_JOB_SPOOL_DIR": "/s/9.1"},
			want: Allocation{ge, "9", 8, 128 * gib, time.Time{}, nil}, warning: "cannot read the limits of the job",
		},
		"grid engine that does not answer": {
			env:   map[string]string{"JOB_ID": "9", "NSLOTS": "8", "SGE_JOB_SPOOL_DIR": "/s/9.1"},
			files: map[string]string{"/s/9.1/config": "queue=all.q\n"},
			want:  Allocation{ge, "9", 8, 128 * gib, time.Time{}, nil}, warning: "cannot ask Grid Engine when the job ends",
		},
		"control groups": {
			files: map[string]string{
				"/proc/self/cgroup":                              "5:memory:/x\n0::/a/b\nnonsense\n1:name:../..\n",
				"/sys/fs/cgroup/a/memory.max":                    "2147483648\n",
				"/sys/fs/cgroup/a/b/memory.max":                  "max\n",
				"/sys/fs/cgroup/a/b/cpu.max":                     "350000 100000\n",
				"/sys/fs/cgroup/cpu.max":                         "max 100000\n",
				"/sys/fs/cgroup/memory/x/memory.limit_in_bytes":  "4294967296\n",
				"/sys/fs/cgroup/memory/memory.limit_in_bytes":    "9223372036854771712\n",
				"/sys/fs/cgroup/unified/a/b/memory.max":          "x\n",
				"/sys/fs/cgroup/unified/nothing/else/memory.max": "1\n",
			},
			end: at(7), want: Allocation{none, "", 3, 2 * gib, at(7), nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, warnings := Find(host(tt.env, tt.files, tt.squeue), tt.end)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if told := strings.Join(warnings, "\n"); (tt.warning == "") != (told == "") || !strings.Contains(told, tt.warning) {
				t.Errorf("warnings %q; want %q", told, tt.warning)
			}
		})
	}
}

// Whatever a batch system says, the allocation is one of this host.
func FuzzFind(f *testing.F) {
	f.Add("16", "1024", "2026-11-27T18:00:00", "h_rt=3600\nh_vmem=2G\n")
	f.Add("-1", "99999999999999999999", "NOTSET", "h_rt=1:2:3\ns_rt=::\nh_vmem=1e300G\n")
	f.Add("0,1", "gpu0 gpu1", "", "")
	f.Add("9223372036854775807", "9223372036854775807", "", "h_vmem=NaN\nh_rss=9223372036854775807\nh_rt=0x10")
	f.Fuzz(func(t *testing.T, number, memory, squeue, config string) {
		for _, env := range []map[string]string{
			{"SLURM_JOB_ID": "1", "SLURM_CPUS_ON_NODE": number, "SLURM_MEM_PER_NODE": memory, "SLURM_MEM_PER_CPU": memory, "CUDA_VISIBLE_DEVICES": number},
			{"JOB_ID": "1", "NSLOTS": number, "SGE_JOB_SPOOL_DIR": "/s", "SGE_HGR_gpu": memory},
		} {
			a, _ := Find(host(env, map[string]string{"/s/config": config, "/proc/self/cgroup": config}, squeue), time.Time{})
			for _, name := range a.GPUs {
				if !gpu.MatchString(name) {
					t.Errorf("%v: GPU %q", env, name)
				}
			}
			if a.Cores < 1 || a.Cores > 64 || a.Memory < 1 || a.Memory > 128<<30 {
				t.Errorf("%v, %q: %+v", env, config, a)
			}
		}
	})
}
