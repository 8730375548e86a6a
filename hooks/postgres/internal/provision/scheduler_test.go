package provision

import (
	"maps"
	"testing"
)

func TestParseSqueue(t *testing.T) {
	for _, tt := range []struct {
		out  string
		want map[string]State // nil: an error
	}{
		{"", map[string]State{}},
		{"17 PD\n18 R\n19 CF\n20 CG\n", map[string]State{"17": Queued, "18": Running, "19": Queued, "20": Running}},
		{"slurm_load_jobs error: Unable to contact slurm controller\n", nil},
		{"17\n", nil},
	} {
		if got, err := parseSqueue(tt.out); !maps.Equal(got, tt.want) || (err != nil) != (tt.want == nil) {
			t.Errorf("%q: %v, %v; want %v", tt.out, got, err, tt.want)
		}
	}
}

func TestParseQstat(t *testing.T) {
	const head = "<?xml version='1.0'?>\n<job_info  xmlns:xsd=\"http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd\">\n"
	for _, tt := range []struct {
		out  string
		want map[string]State // nil: an error
	}{
		{head + "  <queue_info>\n  </queue_info>\n  <job_info>\n  </job_info>\n</job_info>\n", map[string]State{}},
		{head + `  <queue_info>
    <job_list state="running"><JB_job_number>7</JB_job_number><JB_name>p</JB_name><state>r</state></job_list>
    <job_list state="running"><JB_job_number>8</JB_job_number><JB_name>p</JB_name><state>dr</state></job_list>
  </queue_info>
  <job_info>
    <job_list state="pending"><JB_job_number>9</JB_job_number><JB_name>p</JB_name><state>qw</state></job_list>
    <job_list state="pending"><JB_job_number>11</JB_job_number><JB_name>another</JB_name><state>qw</state></job_list>
    <job_list state="pending"><JB_job_number>10</JB_job_number><JB_name>p</JB_name><state>hqw</state></job_list>
  </job_info>
</job_info>
`, map[string]State{"7": Running, "8": Running, "9": Queued, "10": Queued}},
		{head + "  <job_info>\n    <job_list state=\"pending\"></job_list>\n  </job_info>\n</job_info>\n", nil},
		{"", nil},
		{"error: commlib error: got select error (Connection refused)\n", nil},
		{head + "  <queue_info>\n", nil},
	} {
		if got, err := parseQstat(tt.out, "p"); !maps.Equal(got, tt.want) || (err != nil) != (tt.want == nil) {
			t.Errorf("%q: %v, %v; want %v", tt.out, got, err, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("17 PD\n")
	f.Add("<job_info><queue_info><job_list state='running'><JB_job_number>7</JB_job_number><JB_name>p</JB_name></job_list></queue_info></job_info>")
	f.Fuzz(func(t *testing.T, out string) {
		for _, parse := range []func(string) (map[string]State, error){
			parseSqueue, func(out string) (map[string]State, error) { return parseQstat(out, "p") },
		} {
			states, err := parse(out)
			if err != nil && states != nil {
				t.Error("states beside an error")
			}
			for id, s := range states {
				if id == "" || s == Over {
					t.Errorf("job %q in state %d", id, s)
				}
			}
		}
	})
}
